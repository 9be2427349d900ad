"""Backend gloo: communicators whose members change."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
from harness import Died, Rank, Ranks, Returned
from harness.failing import outcomes_without

import torchcomms
from torchcomms import ReduceOp, TorchComm

pytestmark = pytest.mark.skipif(
    not torchcomms.is_backend_built("gloo"), reason="built with USE_GLOO=0"
)

MakeRanks = Callable[[int], Ranks]
SOON = timedelta(milliseconds=500)


def open_comm(rank: Rank, name: str) -> tuple[TorchComm, list[str]]:
    """And the handles of all."""
    comm = torchcomms.new_comm(
        "gloo",
        torch.device("cpu"),
        name,
        enable_reconfigure=True,
        abort_process_on_timeout_or_error=False,
        timeout=timedelta(seconds=60),
    )
    store = rank.store(name)
    store.set(f"handle/{rank.rank}", comm.get_init_handle())
    return comm, [store.get(f"handle/{r}").decode() for r in range(rank.size)]


def members(comm: TorchComm, rank: Rank) -> list[int]:
    """Which processes the communicator has, by rank; each operation in both forms."""
    gathered = [torch.zeros(1) for _ in range(comm.get_size())]
    comm.all_gather(gathered, torch.tensor([float(rank.rank)]), async_op=False)
    total = torch.ones(3)
    comm.all_reduce(total, ReduceOp.SUM, async_op=True).wait()
    assert total.tolist() == [comm.get_size()] * 3
    return [int(one.item()) for one in gathered]


def changes(rank: Rank) -> None:
    comm, handles = open_comm(rank, "changes")
    for call in (lambda: comm.barrier(async_op=False), lambda: comm.split([0])):
        with pytest.raises(torchcomms.CommError, match="needs a call of reconfigure"):
            call()
    assert comm.get_init_handle() == handles[rank.rank]
    assert len(set(handles)) == rank.size
    assert all(handle.startswith("gloo:") for handle in handles)
    for uuid, processes in [
        ("all", [0, 1, 2]),
        ("permuted", [2, 0, 1]),
        ("shrunk", [2, 1]),
        ("alone", [2]),
        ("grown", [1, 2, 0]),
    ]:
        if rank.rank in processes:
            comm.reconfigure(uuid, [handles[p] for p in processes])
            assert members(comm, rank) == processes
            assert comm.get_ranks() == list(range(len(processes)))
            assert comm.get_options().timeout == timedelta(seconds=60)
    comm.reconfigure(17, set(handles))
    assert sorted(members(comm, rank)) == [0, 1, 2]
    child = comm.split([0, 1] if comm.get_rank() < 2 else [2], "child")
    assert child is not None
    child.barrier(async_op=False)
    store = rank.store("children")
    store.set(f"child/{rank.rank}", child.get_init_handle())
    child.reconfigure("all", [store.get(f"child/{r}").decode() for r in range(3)])
    assert members(child, rank) == [0, 1, 2]
    child.finalize()
    comm.finalize()
    with pytest.raises(torchcomms.CommError, match="already finalized"):
        comm.reconfigure("late", handles)


def test_members_change(ranks: MakeRanks) -> None:
    ranks(3).run(changes)


def survives(rank: Rank) -> list[int] | None:
    comm, handles = open_comm(rank, "survives")
    comm.reconfigure("first", handles)
    comm.barrier(async_op=False)
    rank.say("ready")
    rank.listen()  # rank 0, whose store it was, is killed here
    with pytest.raises(torchcomms.CommError):
        comm.barrier(async_op=False)
    assert comm.is_aborted()
    comm.reconfigure("without the dead", [handles[2], handles[1]])
    assert not comm.is_aborted()
    return members(comm, rank)


def test_survivors_go_on(fresh_ranks: MakeRanks) -> None:
    outcomes = outcomes_without(fresh_ranks(3).start(survives), 0)
    assert outcomes[0] == Died(-signal.SIGKILL)
    assert [outcomes[r] for r in (1, 2)] == [Returned([2, 1])] * 2


def refuses(rank: Rank) -> None:
    comm, handles = open_comm(rank, "refuses")
    own = handles[rank.rank]
    comm.reconfigure("first", handles)
    for message, wrong in [
        ("own handle is not among", [handles[1 - rank.rank]]),
        ("handle 1 of the members is none", [own, own.removeprefix("gloo:")]),
        ("handle 1 of the members is none", [own, "gloo:other"]),
    ]:
        with pytest.raises(torchcomms.CommError, match=message):
            comm.reconfigure("wrong", wrong)
    if rank.rank == 0:
        with pytest.raises(torchcomms.CommTimeoutError) as error:
            comm.reconfigure("alone", handles, timeout=SOON)
        assert error.value.ranks == [1]
    assert members(comm, rank) == [0, 1]

    # What is in flight ends: what has begun by its timeout, what has not at once.
    works = [comm.recv(torch.zeros(1), 1 - rank.rank, True, timeout=SOON) for _ in range(2)]
    comm.reconfigure("second", handles)
    assert members(comm, rank) == [0, 1]
    for work in works:
        with pytest.raises(torchcomms.CommError):
            work.wait()
    assert not comm.is_aborted()


def test_what_cannot_be_is_refused(fresh_ranks: MakeRanks) -> None:
    fresh_ranks(2).run(refuses)


def is_watched(rank: Rank) -> None:
    comm, handles = open_comm(rank, "watched")
    comm.reconfigure("first", handles)
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            assert not comm.is_aborted()

    with ThreadPoolExecutor() as pool:
        watching = pool.submit(watch)
        try:
            for i in range(10):
                comm.reconfigure(f"again {i}", handles)
                comm.barrier(async_op=False)
        finally:
            over.set()
        watching.result()


def test_other_threads_ask_meanwhile(fresh_ranks: MakeRanks) -> None:
    fresh_ranks(2).run(is_watched)


def outlives(rank: Rank) -> None:
    comm = rank.new_comm("gloo", "outlived")
    works = [comm.recv(torch.zeros(1), 1 - rank.rank, True, timeout=SOON) for _ in range(2)]
    del comm
    for work in works:
        with pytest.raises(torchcomms.CommError):
            work.wait()


def test_works_end_though_their_communicator_is_gone(fresh_ranks: MakeRanks) -> None:
    fresh_ranks(2).run(outlives)
