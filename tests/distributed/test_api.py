"""The life of communicators and works, and how they are made."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
from harness import Rank, Ranks

import torchcomms
from torchcomms import ReduceOp

MakeRanks = Callable[[int], Ranks]
BACKEND = "ctran"
CPU = torch.device("cpu")


def _sum(comm: torchcomms.TorchComm) -> float:
    tensor = torch.full((3,), comm.get_rank() + 1.0)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    return tensor[0].item()


# ---- life of a communicator


def lives(rank: Rank) -> None:
    comm = rank.new_comm(BACKEND, "life", timeout=timedelta(seconds=17), hints={"a": "b"})
    assert comm.get_rank() == rank.rank
    assert comm.get_size() == rank.size
    assert comm.get_name() == "life"
    assert comm.get_backend() == BACKEND
    assert comm.get_backend_version()
    assert comm.get_device() == CPU
    assert comm.get_ranks() == list(range(rank.size))
    options = comm.get_options()
    assert options.timeout == timedelta(seconds=17)
    assert options.abort_process_on_timeout_or_error is False
    assert options.hints == {"a": "b"}
    assert comm.get_backend_impl().get_backend_name() == BACKEND
    with pytest.warns(DeprecationWarning, match="get_backend_impl"):
        assert comm.unsafe_get_backend().get_rank() == rank.rank
    assert comm.is_abort_supported()
    assert not comm.is_aborted()
    for part in ("life", BACKEND, str(rank.rank), str(rank.size)):
        assert part in repr(comm)
    comm.set_timeout(timedelta(seconds=3))
    assert comm.get_options().timeout == timedelta(seconds=3)
    _sum(comm)
    comm.finalize()
    with pytest.raises(torchcomms.CommError, match="already finalized"):
        comm.finalize()
    with pytest.raises(torchcomms.CommError, match="already finalized"):
        _sum(comm)
    assert comm.get_rank() == rank.rank


def test_life_of_a_communicator(ranks: MakeRanks) -> None:
    ranks(3).run(lives)


def has_one_name_twice(rank: Rank) -> list[float]:
    first = rank.new_comm(BACKEND, "same")
    second = rank.new_comm(BACKEND, "same")
    work = first.all_reduce(torch.ones(9), ReduceOp.SUM, async_op=True)
    sums = [_sum(second), _sum(first)]
    work.wait()
    second.finalize()
    sums.append(_sum(first))
    third = rank.new_comm(BACKEND, "same")
    sums += [_sum(third), _sum(first)]
    return sums


def test_communicators_of_one_name_do_not_collide(ranks: MakeRanks) -> None:
    assert ranks(3).run(has_one_name_twice) == [[6.0] * 5] * 3


def has_many(rank: Rank) -> list[float]:
    comms = [rank.new_comm(BACKEND, f"many-{i}") for i in range(30)]
    works = [c.all_reduce(torch.ones(100), ReduceOp.SUM, async_op=True) for c in comms]
    sums = [_sum(comm) for comm in reversed(comms)]
    for work in works:
        work.wait()
    return sums


def test_many_communicators(ranks: MakeRanks) -> None:
    assert ranks(2).run(has_many) == [[3.0] * 30] * 2


def is_referred_to(rank: Rank) -> None:
    comm = rank.new_comm(BACKEND, "referred")
    assert copy.copy(comm) is comm
    assert copy.deepcopy({"a": [comm]})["a"][0] is comm
    gone: list[None] = []
    weak = weakref.ref(comm, lambda _: gone.append(None))
    assert weak() is comm
    del comm
    gc.collect()
    assert weak() is None
    assert gone


def test_copies_are_the_same_and_weak_references_work(ranks: MakeRanks) -> None:
    ranks(2).run(is_referred_to)


def outlives(rank: Rank) -> list[float]:
    """A work keeps what it needs: neither communicator nor tensor have to be held."""
    results = [torch.full((70_000,), float(rank.rank)) for _ in range(3)]
    comm = rank.new_comm(BACKEND, "outlived")
    works = [comm.all_reduce(r, ReduceOp.SUM, async_op=True) for r in results]
    ignored = comm.all_reduce(torch.ones(70_000), ReduceOp.SUM, async_op=True)
    del comm
    gc.collect()
    for work in [*works, ignored]:
        work.wait()
    return [r[0].item() for r in results]


def test_works_outlive_what_they_were_made_of(ranks: MakeRanks) -> None:
    assert ranks(3).run(outlives) == [[3.0] * 3] * 3


# ---- new_comm


def test_alone_without_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "TORCHCOMM_RANK", "TORCHCOMM_SIZE"):
        monkeypatch.delenv(name, raising=False)
    comm = torchcomms.new_comm(BACKEND, CPU)
    assert (comm.get_rank(), comm.get_size()) == (0, 1)
    assert _sum(comm) == 1.0
    comm.finalize()


def test_options_come_from_environment_options_and_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert torchcomms.CommOptions().timeout == timedelta(seconds=600)
    assert torchcomms.CommOptions().abort_process_on_timeout_or_error
    monkeypatch.setenv("TORCHCOMM_TIMEOUT_SECONDS", "41")
    monkeypatch.setenv("TORCHCOMM_ABORT_ON_ERROR", "no")
    given = torchcomms.CommOptions()
    assert given.timeout == timedelta(seconds=41)
    assert not given.abort_process_on_timeout_or_error
    given.name = "given"
    given.hints = {"x": "1"}
    comm = torchcomms.new_comm("fake", CPU, options=given)
    assert comm.get_name() == "given"
    assert comm.get_options().hints == {"x": "1"}
    comm = torchcomms.new_comm("fake", CPU, "other", options=given, timeout=timedelta(seconds=7))
    assert comm.get_name() == "other"
    assert comm.get_options().timeout == timedelta(seconds=7)
    assert not comm.get_options().abort_process_on_timeout_or_error


def test_unknown_backend_is_told_which_there_are() -> None:
    with pytest.raises(Exception, match=r"nosuch.*ctran.*fake") as error:
        torchcomms.new_comm("nosuch", CPU)
    assert isinstance(error.value, ImportError | torchcomms.CommError)
    assert not torchcomms.is_backend_built("nosuch")
    assert torchcomms.is_backend_built(BACKEND)
    assert {"ctran", "fake"} <= set(torchcomms.built_backends())


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without CUDA")
def test_cuda_without_a_gpu_is_a_clear_error() -> None:
    with pytest.raises(torchcomms.CommError, match="cuda"):
        torchcomms.new_comm(BACKEND, torch.device("cuda"))


def test_what_is_public_exists() -> None:
    for name in torchcomms.__all__:
        assert hasattr(torchcomms, name)
    named = "new_comm TorchComm ReduceOp TorchWork Timeout BatchP2POptions BatchSendRecv P2POp "
    named += "CommOptions TorchCommBackend RedOpType WorkStatus OpName __version__"
    for name in named.split():
        assert hasattr(torchcomms, name)
    assert issubclass(torchcomms.Timeout, timedelta)


# ---- works


def works(rank: Rank) -> None:
    comm = rank.comm(BACKEND)
    tensor = torch.ones(4)
    if rank.rank == 1:
        rank.listen()
    work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=True)
    assert isinstance(work, torchcomms.TorchWork)
    if rank.rank == 0:
        assert not work.is_completed()
        assert work.status in (
            torchcomms.WorkStatus.NOT_STARTED,
            torchcomms.WorkStatus.INPROGRESS,
        )
        assert work.wait(timedelta(milliseconds=1)) is False
        assert work.exception() is None
        rank.say("looked")
    assert work.wait(torchcomms.Timeout(seconds=30)) is True
    work.wait_blocking()
    assert work.is_completed()
    assert work.status == torchcomms.WorkStatus.COMPLETED
    assert tensor[0] == 2
    done = comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    assert isinstance(done, torchcomms.TorchWork)
    assert done.is_completed()
    done.wait()


def test_works(ranks: MakeRanks) -> None:
    job = ranks(2).start(works)
    assert job.hear(0) == "looked"
    job.say(1)
    job.results()


def enters_barriers(rank: Rank) -> list[int]:
    """How many others had entered whenever this rank left one."""
    comm = rank.comm(BACKEND)
    store = rank.store("barrier")
    entered = []
    for i in range(20):
        store.add(str(i), 1)
        comm.barrier(async_op=False)
        entered.append(store.add(str(i), 0))
    return entered


def test_nobody_leaves_a_barrier_before_all_have_entered(ranks: MakeRanks) -> None:
    assert ranks(4).run(enters_barriers) == [[4] * 20] * 4
