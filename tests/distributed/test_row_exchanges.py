"""all_to_all_v of which only the senders know the sizes, against what plain torch makes of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
from harness import Rank, Ranks
from torch import Tensor

import torchcomms

MakeRanks = Callable[[int], Ranks]

POISON = -7.0
ROW = (2, 3)


def _part(tensor: Tensor, counts: Tensor, index: int) -> Tensor:
    first = int(counts[:index].sum())
    return tensor[first : first + int(counts[index])]


class Sent:
    """What one rank passes; every rank can tell that of every other."""

    def __init__(self, rank: int, size: int, seed: int, most: int) -> None:
        random = torch.Generator().manual_seed(1000 * seed + rank)

        def number(below: int, *shape: int) -> Tensor:
            return torch.randint(0, below, shape, generator=random)

        self.counts = number(most + 1, size)
        self.rows = int(self.counts.sum()) + 1
        place = torch.arange(self.rows * 6, dtype=torch.float32).reshape(self.rows, *ROW)
        self.input = place + 1000.0 * rank + seed
        self.indices = number(self.rows, int(self.counts.sum()))
        self.chunks = number(4, 3)
        self.chunk_counts = number(3, size)
        self.chunk_indices = number(3, int(self.chunk_counts.sum()))

    def in_order(self, peer: int) -> Tensor:
        return _part(self.input, self.counts, peer)

    def listed(self, peer: int) -> Tensor:
        return _part(self.indices, self.counts, peer)

    def listed_chunks(self, peer: int) -> list[int]:
        return [int(index) for index in _part(self.chunk_indices, self.chunk_counts, peer)]

    def chunked(self) -> Tensor:
        rows = int(self.chunks.sum())
        return self.input.flatten()[0] + torch.arange(rows * 4, dtype=torch.float32)

    def chunk(self, index: int) -> Tensor:
        return _part(self.chunked(), 4 * self.chunks, index)


def _room(rows: int) -> Tensor:
    return torch.full((rows, *ROW), POISON)


def _exchanges(comm: Any, seed: int, most: int, async_op: bool) -> None:
    rank, size = comm.get_rank(), comm.get_size()
    all_sent = [Sent(r, size, seed, most) for r in range(size)]
    own = all_sent[rank]

    # In order, and the sizes are learned.
    expected = torch.cat([sent.in_order(rank) for sent in all_sent])
    output, sizes = _room(len(expected) + 2), torch.full((size,), -1)
    work = comm.all_to_all_v_dynamic(output, own.input, sizes, own.counts, async_op)
    assert work.wait()
    assert torch.equal(output[:-2], expected)
    assert (output[-2:] == POISON).all()
    assert sizes.tolist() == [int(sent.counts[rank]) for sent in all_sent]

    # The same with sizes that are known, in tensors; here, once they have come.
    told = torch.full((size,), -1)
    output = _room(len(expected))
    first = comm.all_to_all_single(told, own.counts, async_op)
    comm.device_alltoallv_single(output, own.input, told, own.counts, async_op).wait()
    assert first.wait()
    assert torch.equal(output, expected)

    # Chunks, into a tensor per sender; and one after another.
    parts = []
    for sent in all_sent:
        listed = [sent.chunk(index) for index in sent.listed_chunks(rank)]
        parts.append(torch.cat(listed) if listed else torch.zeros(0))
    chunk_sizes = torch.full((size * 3,), -1)
    outputs = [torch.full((part.numel() + 8,), POISON) for part in parts]
    lists = (own.chunks, own.chunk_indices, own.chunk_counts)
    comm.alltoallv_dynamic_dispatch(
        outputs, chunk_sizes, own.chunked(), *lists, hidden_dim=4, async_op=async_op
    ).wait()
    for part, got in zip(parts, outputs, strict=True):
        assert torch.equal(got[:-8], part)
        assert (got[-8:] == POISON).all()
    assert chunk_sizes.tolist() == [
        int(sent.chunks[index]) * sent.listed_chunks(rank).count(index)
        for sent in all_sent
        for index in range(3)
    ]
    together = torch.full((sum(map(len, parts)),), POISON)
    comm.alltoallv_dynamic_combine(together, own.chunked(), *lists, 4, async_op).wait()
    assert torch.equal(together, torch.cat(parts))

    # Listed rows, once per host; and back as sums.
    expected = torch.cat([sent.input[sent.listed(rank)] for sent in all_sent])
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        output = _room(len(expected) + 1).to(dtype)
        sizes = torch.full((size,), -1)
        comm.all_to_all_v_dedup(
            output, own.input.to(dtype), sizes, own.indices, own.counts, async_op=async_op
        ).wait()
        assert torch.equal(output[:-1], expected.to(dtype))
        assert (output[-1] == POISON).all()
        for weighted in (False, True):
            weights = torch.arange(len(expected)).remainder(4) / 4 if weighted else None
            back = torch.full((own.rows, *ROW), POISON, dtype=dtype)
            comm.all_to_all_v_dedup_combine(
                back, output[:-1], weights, sizes, own.indices, own.counts, async_op
            ).wait()
            sums = torch.zeros(own.rows, *ROW, dtype=torch.float64)
            for peer in range(size):
                before = sum(int(sent.counts[peer]) for sent in all_sent[:rank])
                listed = own.listed(peer)
                factors = (torch.arange(before, before + len(listed)) % 4 / 4)[:, None, None]
                rows = own.input.to(dtype).double()[listed]
                sums.index_add_(0, listed, rows * factors if weighted else rows)
            assert torch.equal(back, sums.to(dtype))


def exchanges(rank: Rank, per_host: int) -> None:
    hints = {"ctran::host": f"host{rank.rank // per_host}"} if per_host else {}
    comm = rank.new_comm("ctran", f"rows{per_host}", hints=hints)
    for seed, most in enumerate((0, 3, 40, 400)):
        _exchanges(comm, seed, most, async_op=seed % 2 == 1)
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
