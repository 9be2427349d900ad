"""all_to_all_v of which only the senders know the sizes, against what plain torch makes of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
from harness import Rank, Ranks
from harness.row_exchanges import POISON, in_order, listed

import torchcomms

MakeRanks = Callable[[int], Ranks]


def exchanges(rank: Rank, per_host: int) -> None:
    hints = {"ctran::host": f"host{rank.rank // per_host}"} if per_host else {}
    comm = rank.new_comm("ctran", f"rows{per_host}", hints=hints)
    for seed, most in enumerate((0, 3, 40, 400)):
        in_order(comm, seed, most, async_op=seed % 2 == 1)
        listed(comm, seed, most, async_op=seed % 2 == 1)
    comm.finalize()


@pytest.mark.parametrize(
    ("size", "per_host"), [(1, 0), (2, 0), (3, 0), (7, 0), (2, 1), (3, 1), (4, 2), (8, 3)]
)
def test_they_give_what_torch_gives(ranks: MakeRanks, size: int, per_host: int) -> None:
    ranks(size).run(exchanges, per_host)


def reports(rank: Rank) -> list[Any]:
    """What hooks are told."""
    comm = rank.new_comm("ctran", "hooked")
    seen: list[Any] = []
    comm.register_pre_hook(lambda name, _, args: seen.append((str(name), args)))
    comm.register_post_hook(lambda _, args: seen.append(type(args).__name__))
    size = rank.size
    counts, learned = torch.ones(size, dtype=torch.int64), torch.zeros(size, dtype=torch.int64)
    data, output = torch.ones(size, 2), torch.zeros(size, 2)
    comm.all_to_all_v_dynamic(output, data, learned, counts, async_op=False)
    (name, args), post = seen
    assert (args.async_op, post) == (False, "CollectivePostHookArgs")
    assert args.input is data or torch.equal(args.input, data)
    assert [t.data_ptr() for t in args.output] == [output.data_ptr()]
    assert args.input_split_sizes.tolist() == [1] * size
    assert args.output_split_sizes.data_ptr() == learned.data_ptr()
    comm.finalize()
    return [name]


def test_hooks_are_told(ranks: MakeRanks) -> None:
    assert ranks(2).run(reports) == [["OpName.all_to_all_v_dynamic"]] * 2


def refuses(rank: Rank) -> None:
    comm = rank.comm()
    size = rank.size
    ones, data = torch.ones(size, dtype=torch.int64), torch.zeros(4, 2)
    out, learned = torch.zeros(4, 2), torch.zeros(size, dtype=torch.int64)
    indices = torch.arange(size)
    calls: list[tuple[str, Callable[[], object]]] = [
        ("int64", lambda: comm.all_to_all_v_dynamic(out, data, learned, ones.float(), False)),
        (
            f"{size} elements",
            lambda: comm.all_to_all_v_dynamic(out, data, learned, ones[1:], False),
        ),
        ("overlap", lambda: comm.all_to_all_v_dynamic(data, data, learned, ones, False)),
        (
            "same size",
            lambda: comm.all_to_all_v_dynamic(out[:, :1].clone(), data, learned, ones, False),
        ),
        ("same dtype", lambda: comm.all_to_all_v_dynamic(out.int(), data, learned, ones, False)),
        (
            "count for rank 0 is -1",
            lambda: comm.all_to_all_v_dynamic(out, data, learned, -ones, False),
        ),
        ("count for rank", lambda: comm.all_to_all_v_dynamic(out, data, learned, 9 * ones, True)),
        (
            "hidden_dim",
            lambda: comm.alltoallv_dynamic_combine(out, data, ones, indices, ones, 0, False),
        ),
        (
            "hidden_dim",
            lambda: comm.alltoallv_dynamic_combine(out, data, ones, indices, ones, 3, False),
        ),
        (
            "comm_size",
            lambda: comm.alltoallv_dynamic_dispatch(
                [out], ones, data, ones, indices, ones, 2, False
            ),
        ),
        (
            "chunk 0 has",
            lambda: comm.alltoallv_dynamic_combine(out, data, 9 * ones, indices, ones, 2, False),
        ),
        ("index", lambda: comm.all_to_all_v_dedup(out, data, learned, indices + 4, ones, False)),
        (
            "weights",
            lambda: comm.all_to_all_v_dedup_combine(
                out, data, ones.float(), ones, indices, ones, False
            ),
        ),
        (
            "int32",
            lambda: comm.all_to_all_v_dedup_combine(
                out.int(), data.int(), None, ones, indices, ones, False
            ),
        ),
    ]
    for match, call in calls:
        with pytest.raises(torchcomms.CommError, match=match):
            call()
    comm.all_to_all_v_dynamic(out, data, learned, ones, False)  # nothing was broken
    assert learned.tolist() == [1] * size


def test_wrong_arguments_are_refused_at_the_call(ranks: MakeRanks) -> None:
    ranks(3).run(refuses)


def overflows(rank: Rank, per_host: int) -> None:
    hints = {"ctran::host": f"host{rank.rank // per_host}"} if per_host else {}
    comm = rank.new_comm("ctran", f"overflow{per_host}", hints=hints)
    counts = torch.tensor([0, 3, 0] if rank.rank == 2 else [0, 0, 0])
    output, learned = torch.full((2, 5), POISON), torch.zeros(3, dtype=torch.int64)

    def exchange() -> None:
        comm.all_to_all_v_dynamic(output, torch.ones(3, 5), learned, counts, async_op=False)
        comm.barrier(async_op=False)  # whom rank 2 sends nothing may hear of it only here

    with pytest.raises(torchcomms.MismatchError, match=r"rank 2 sends 3 rows to rank 1") as caught:
        exchange()
    assert sorted(caught.value.ranks) == [1, 2]
    assert (output == POISON).all()


@pytest.mark.parametrize("per_host", [0, 1, 2])
def test_what_does_not_fit_names_the_sender(ranks: MakeRanks, per_host: int) -> None:
    ranks(3).run(overflows, per_host)


def waits_for_the_last(rank: Rank, per_host: int) -> None:
    hints = {"ctran::host": f"host{rank.rank // per_host}"} if per_host else {}
    comm = rank.new_comm("ctran", f"late{per_host}", hints=hints)
    rank.say("here")
    rank.listen()  # all are here
    if rank.rank < 2:
        ones = torch.ones(3, dtype=torch.int64)
        output, learned = torch.zeros(9, 5), torch.zeros(3, dtype=torch.int64)
        with pytest.raises(torchcomms.CommTimeoutError) as caught:
            comm.all_to_all_v_dedup(
                output,
                torch.ones(3, 5),
                learned,
                torch.arange(3),
                ones,
                async_op=False,
                timeout=timedelta(seconds=1.5),
            )
        assert caught.value.ranks == [2]
    rank.say("here")
    rank.listen()  # nobody leaves before


@pytest.mark.parametrize("per_host", [0, 1, 2])
def test_who_does_not_come_is_named(ranks: MakeRanks, per_host: int) -> None:
    job = ranks(3).start(waits_for_the_last, per_host)
    for _ in range(2):
        for r in range(3):
            job.hear(r)
        for r in range(3):
            job.say(r)
    job.results()


def test_a_backend_without_them_says_so(ranks: MakeRanks) -> None:
    ranks(2).run(says_so)


def says_so(rank: Rank) -> None:
    ones = torch.ones(2, dtype=torch.int64)
    with pytest.raises(torchcomms.CommError, match="not supported by backend gloo"):
        rank.comm("gloo").all_to_all_v_dynamic(
            torch.zeros(4), torch.zeros(2), ones, ones, async_op=False
        )
