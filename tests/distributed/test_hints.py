"""Hints of one call, and set_hints."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from harness import Rank, Ranks

import torchcomms
from torchcomms import ReduceOp

MakeRanks = Callable[[int], Ranks]
NBYTES = 1 << 20


def algorithm(comm: torchcomms.TorchComm, name: str) -> dict[str, str]:
    """Hints that name it, if it serves an all_reduce."""
    hints = {"ctran::algorithm": name}
    told = comm.explain("all_reduce", NBYTES, torch.float32, hints=hints)
    assert told.algorithm == name
    assert told.why.startswith("the hint ctran::algorithm")
    return hints


def calls_have_hints(rank: Rank, hosts: int, names: list[str]) -> None:
    comm = rank.comm(hosts=hosts)
    for _ in range(2):
        comm.barrier(False)  # now all know what all can do
    usual = comm.explain("all_reduce", NBYTES, torch.float32).algorithm
    expected = torch.arange(NBYTES // 4) * rank.size + sum(range(rank.size))
    for name in names:
        hints = algorithm(comm, name)
        for async_op in (False, True):
            tensor = torch.arange(NBYTES // 4, dtype=torch.float32) + rank.rank
            work = comm.all_reduce(tensor, ReduceOp.SUM, async_op, hints=hints)
            if async_op:
                work.wait()
            assert torch.equal(tensor, expected.float())
    assert comm.explain("all_reduce", NBYTES, torch.float32).algorithm == usual


def test_of_one_call_on_one_host(ranks: MakeRanks) -> None:
    ranks(4).run(calls_have_hints, 1, ["two_phase", "ring", "halving_doubling"])


def test_of_one_call_between_hosts(ranks: MakeRanks) -> None:
    ranks(4).run(calls_have_hints, 2, ["direct", "two_phase", "ring", "group"])


def sums_in_rank_order(rank: Rank, hosts: int) -> None:
    comm = rank.comm(hosts=hosts)
    hints = {"ctran::deterministic": "rank_order"}
    told = comm.explain("all_reduce", NBYTES, torch.float32, hints=hints)
    assert told.algorithm != "group"
    values = torch.tensor([1e8, 1.0, -1e8, 1.0])  # the order shows
    tensor = torch.full((NBYTES // 4,), values[rank.rank].item())
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False, hints=hints)
    assert (tensor == ((values[0] + values[1]) + values[2]) + values[3]).all()


def test_rank_order_of_one_call(ranks: MakeRanks) -> None:
    ranks(4).run(sums_in_rank_order, 2)


def refuses_nonsense(rank: Rank) -> None:
    comm = rank.comm()
    tensor = torch.ones(3)
    for hints, said in (
        ({"ctran::algorithm": "magic"}, "magic"),
        ({"ctran::deterministic": "perhaps"}, "rank_order"),
        ({"ctran::colour": "red"}, "a call knows no hint ctran::colour"),
        ({"ctran::host": "elsewhere"}, "a call knows no hint ctran::host"),
        ({"ctran::ib_fail_over": "0"}, "a call knows no hint ctran::ib_fail_over"),
        ({"ncclx::member": "nccl"}, "a call knows no hint ncclx::member"),
    ):
        for async_op in (False, True):
            with pytest.raises(torchcomms.CommError, match=said):
                comm.all_reduce(tensor, ReduceOp.SUM, async_op, hints=hints)
        with pytest.raises(torchcomms.CommError, match=said):
            comm.send(tensor, 0, async_op=True, hints=hints)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False, hints={"nccl::colour": "red"})
    assert (tensor == rank.size).all()
    with pytest.raises(torchcomms.CommError, match="knows no hint ctran::colour"):
        rank.new_comm("ctran", "refused", hints={"ctran::colour": "red"})
    with pytest.raises(torchcomms.CommError, match='ib_fail_over is "0" or "1", not "yes"'):
        rank.new_comm("ctran", "refused too", hints={"ctran::ib_fail_over": "yes"})


def test_nonsense_is_refused_at_the_call(ranks: MakeRanks) -> None:
    ranks(2).run(refuses_nonsense)


@pytest.mark.parametrize("backend", ["ctran", "gloo", "fake"])
def test_prefixes_are_known_whatever_the_backend(backend: str) -> None:
    options = torchcomms.CommOptions()
    options.rank, options.size = 0, 1
    device = torch.device("cpu")
    hints = {"ctran::algorithm": "ring", "ncclx::member": "ctran", "others::colour": "red"}
    options.hints = hints
    comm = torchcomms.new_comm(backend, device, "known", options=options, store=dist.HashStore())
    tensor = torch.ones(3)
    comm.all_reduce(tensor, ReduceOp.SUM, False, hints={"ctran::algorithm": "two_phase"})
    for wrong in ({"ctran::colour": "red"}, {"ncclx::colour": "red"}):
        (key,) = wrong
        with pytest.raises(torchcomms.CommError, match=f"a call knows no hint {key}"):
            comm.all_reduce(tensor, ReduceOp.SUM, False, hints=wrong)
        options.hints = wrong
        with pytest.raises(torchcomms.CommError, match=f"a communicator knows no hint {key}"):
            torchcomms.new_comm(backend, device, "no", options=options, store=dist.HashStore())
        with pytest.raises(torchcomms.CommError, match=f"a communicator knows no hint {key}"):
            comm.set_hints(wrong)
    comm.finalize()


def disagrees(rank: Rank, hosts: bool) -> None:
    hints = {"ctran::host": f"host{rank.rank}"} if hosts else {}
    comm = rank.new_comm("ctran", "disagreement", hints=hints)
    own = {} if rank.rank == 0 else {"ctran::algorithm": "ring"}

    def call_twice() -> None:  # one that had ended may tell at the next
        for _ in range(2):
            comm.all_reduce(torch.ones(NBYTES), ReduceOp.SUM, async_op=False, hints=own)

    with pytest.raises(torchcomms.MismatchError):
        call_twice()


@pytest.mark.parametrize("hosts", [False, True])
def test_ranks_that_disagree_are_told(fresh_ranks: MakeRanks, hosts: bool) -> None:
    fresh_ranks(2).run(disagrees, hosts)


def sets_hints(rank: Rank, hosts: int) -> None:
    given = {"ctran::algorithm": "direct" if hosts > 1 else "two_phase"}
    host = {"ctran::host": f"host{rank.rank % 2}"} if hosts > 1 else {}
    comm = rank.new_comm("ctran", "standing", hints={**given, **host})

    def chosen(comm: torchcomms.TorchComm) -> str:
        return comm.explain("all_reduce", NBYTES, torch.float32).algorithm

    def works(comm: torchcomms.TorchComm) -> bool:
        tensor = torch.full((NBYTES // 4,), 2.0)
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        return bool((tensor == 2 * comm.get_size()).all())

    assert chosen(comm) == given["ctran::algorithm"]
    comm.set_hints({"ctran::algorithm": "ring"})
    assert comm.get_options().hints == {"ctran::algorithm": "ring"}
    assert chosen(comm) == "ring"
    assert works(comm)
    tensor = torch.ones(NBYTES // 4)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False, hints=given)  # the call's come first
    assert (tensor == rank.size).all()
    part = comm.split(list(range(rank.size)), "heir")
    assert part is not None
    assert chosen(part) == "ring"
    assert works(part)
    other = comm.split(list(range(rank.size)), "other", hints={**given, **host})
    assert other is not None
    assert chosen(other) == given["ctran::algorithm"]
    assert works(other)
    other.finalize()
    part.finalize()
    with pytest.raises(torchcomms.CommError, match="magic"):
        comm.set_hints({"ctran::algorithm": "magic"})
    assert chosen(comm) == "ring"
    comm.set_hints({})
    assert comm.explain("all_reduce", NBYTES, torch.float32).why.startswith("the fastest")
    assert works(comm)
    comm.finalize()


@pytest.mark.parametrize("hosts", [1, 2])
def test_set_hints_counts_from_now_on(fresh_ranks: MakeRanks, hosts: int) -> None:
    fresh_ranks(4).run(sets_hints, hosts)


def prepares(rank: Rank, hosts: int) -> None:
    comm = rank.comm(hosts=hosts)
    for op in ("barrier", "broadcast", "all_reduce", "reduce", "all_gather", "reduce_scatter"):
        comm.prepare(op, 1 << 16)
    for op in ("all_to_all", "gather", "scatter"):
        for nbytes in (0, 1 << 16):
            comm.prepare(op, nbytes, torch.bfloat16)
    comm.prepare("all_reduce", NBYTES, torch.int32, ReduceOp.MAX, hints=algorithm(comm, "ring"))
    with pytest.raises(ValueError, match="'send'"):
        comm.prepare("send", 8)
    tensor = torch.ones(3)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    assert tensor.tolist() == [rank.size] * 3


@pytest.mark.parametrize("hosts", [1, 2])
def test_prepare(ranks: MakeRanks, hosts: int) -> None:
    ranks(4).run(prepares, hosts)
