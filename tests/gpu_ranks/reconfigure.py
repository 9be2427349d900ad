"""Communicators of GPUs whose members change, and that go on after a death.

Backend nccl promises the same.
"""

from __future__ import annotations

import signal
from datetime import timedelta

import torch
from harness import Died, Rank, Ranks, Returned
from harness.failing import asked_by_other_threads, error_of, outcomes_without

import torchcomms
from gpu_ranks import BACKEND, Make, case
from torchcomms import ReduceOp, TorchComm

LARGE = 3_000_001


def _open(rank: Rank, backend: str, name: str) -> tuple[TorchComm, list[str]]:
    """A communicator without members, and the handles of all processes."""
    comm = rank.new_comm(backend, name, enable_reconfigure=True, timeout=timedelta(seconds=60))
    store = rank.store(f"handles of {backend} {name}")
    store.set(f"{rank.rank}", comm.get_init_handle())
    return comm, [store.get(f"{r}").decode() for r in range(rank.size)]


def _members(comm: TorchComm, rank: Rank, backend: str) -> list[int]:
    """Which processes it has, by rank."""
    own = torch.full((1,), float(rank.rank), device=rank.device(backend))
    found = torch.zeros(comm.get_size(), device=own.device)
    comm.all_gather_single(found, own, async_op=False)
    large = torch.ones(LARGE, device=own.device)
    # An operation that another thread aborts leaves anything there: this tells, a stream does not.
    comm.all_reduce(large, ReduceOp.SUM, async_op=True).wait_blocking()
    assert (large.cpu() == comm.get_size()).all()
    members = [int(one) for one in found.tolist()]
    assert members[comm.get_rank()] == rank.rank
    return members


def changes(rank: Rank, backend: str) -> None:
    comm, handles = _open(rank, backend, "changes")
    tensor = torch.ones(4, device=rank.device(backend))
    for call in (
        lambda: comm.all_reduce(tensor, ReduceOp.SUM, async_op=False),
        lambda: comm.split([rank.rank]),
        lambda: comm.new_window(),
    ):
        told = str(error_of(call))
        assert "needs a call of reconfigure" in told, told
    assert not comm.is_aborted()
    for uuid, processes in (
        ("all", [0, 1, 2]),
        ("permuted", [2, 0, 1]),
        ("shrunk", [2, 1]),
        ("grown", [1, 2, 0]),
    ):
        if rank.rank in processes:
            comm.reconfigure(uuid, [handles[p] for p in processes])
            assert _members(comm, rank, backend) == processes
    half = comm.split([0, 1] if comm.get_rank() < 2 else [2], "part")
    assert half is not None
    assert _members(half, rank, backend) == ([1, 2] if rank.rank else [0])
    half.finalize()
    comm.finalize()


@case(world=3)
def members_change(make: Make) -> None:
    make(3).run(changes, BACKEND)


def survives(rank: Rank, backend: str) -> list[int]:
    comm, handles = _open(rank, backend, "survives")
    comm.reconfigure("first", handles)
    _members(comm, rank, backend)
    rank.say("ready")
    rank.listen()  # rank 1 is killed here
    tensor = torch.ones(4, device=rank.device(backend))
    error = error_of(
        lambda: comm.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait_blocking(),
        torchcomms.PeerLostError,
    )
    assert error.ranks == [1]  # type: ignore[attr-defined]
    assert comm.is_aborted()
    comm.reconfigure("without the dead", [handles[2], handles[0]])
    assert not comm.is_aborted()
    return _members(comm, rank, backend)


def lose_one(ranks: Ranks, backend: str) -> None:
    outcomes = outcomes_without(ranks.start(survives, backend), 1)
    assert outcomes[1] == Died(-signal.SIGKILL)
    assert [outcomes[r] for r in (0, 2)] == [Returned([2, 0])] * 2


@case(world=3, breaks=True)
def survivors_go_on(make: Make) -> None:
    lose_one(make(3), BACKEND)


def leaves_work(rank: Rank, backend: str) -> None:
    comm, handles = _open(rank, backend, "leaves work")
    comm.reconfigure("before", handles)
    tensor = torch.ones(4, device=rank.device(backend))
    work = comm.recv(tensor, (rank.rank + 1) % rank.size, async_op=True)
    comm.reconfigure("after", handles)
    assert "reconfigure() has changed" in str(error_of(work.wait_blocking, torchcomms.AbortedError))
    assert _members(comm, rank, backend) == [0, 1]
    assert not comm.is_aborted()
    comm.finalize()


@case(world=2, breaks=True)
def what_was_in_flight_fails(make: Make) -> None:
    make(2).run(leaves_work, BACKEND)


def is_watched(rank: Rank, backend: str, aborts: bool) -> None:
    comm, handles = _open(rank, backend, f"watched {aborts}")
    comm.reconfigure("first", handles)
    with asked_by_other_threads(comm, aborts=aborts):
        for i in range(10):
            try:
                comm.reconfigure(f"again {i}", handles)
                assert _members(comm, rank, backend) == [0, 1]
            except torchcomms.CommError:
                assert aborts


@case(world=2, breaks=True)
def other_threads_ask_and_abort_meanwhile(make: Make) -> None:
    for aborts in (False, True):
        make(2).run(is_watched, BACKEND, aborts)
