"""Communicators whose members change: shrink, grow, replace, merge, and going on after a death."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
from harness import Died, Rank, Ranks, Returned
from harness.failing import asked_by_other_threads, outcomes_without

import torchcomms
from torchcomms import ReduceOp, TorchComm
from torchcomms.hooks import NanCheckHook

MakeRanks = Callable[[int], Ranks]
GUARD = timedelta(seconds=60)


HOSTS = pytest.mark.parametrize("per_host", [0, 2, 1], ids=["one_host", "two_hosts", "hosts"])


def open_comm(rank: Rank, per_host: int = 0) -> TorchComm:
    """With so many ranks on each host; 0: all on this one."""
    host = "" if per_host == 0 else f"host{rank.rank // per_host}"
    return torchcomms.new_comm(
        "ctran",
        torch.device("cpu"),
        "elastic",
        hints={"ctran::host": host},
        enable_reconfigure=True,
        abort_process_on_timeout_or_error=False,
        timeout=GUARD,
    )


def members(comm: TorchComm, rank: Rank) -> list[int]:
    """Which processes the communicator has, by rank; each operation in both forms."""
    gathered = [torch.zeros(1) for _ in range(comm.get_size())]
    comm.all_gather(gathered, torch.tensor([float(rank.rank)]), async_op=False)
    total = torch.ones(3)
    comm.all_reduce(total, ReduceOp.SUM, async_op=True).wait()
    assert total.tolist() == [comm.get_size()] * 3
    assert comm.get_ranks() == list(range(comm.get_size()))
    found = [int(one.item()) for one in gathered]
    assert found[comm.get_rank()] == rank.rank
    return found


def checks_for_nans(rank: Rank) -> str:
    """The hook stays as ranks change: the root's input is looked at, by its new number."""
    store = rank.store("checks for nans")
    comm = open_comm(rank)
    hook = NanCheckHook()
    hook.register_with_comm(comm)
    store.set(f"handle/{rank.rank}", comm.get_init_handle())
    handles = [store.get(f"handle/{r}").decode() for r in range(rank.size)]
    comm.reconfigure("reversed", handles[::-1])
    error = ""
    if comm.get_rank() == 0:
        with pytest.raises(torchcomms.CommError, match="NaN detected") as caught:
            comm.broadcast(torch.tensor([float("nan")]), 0, async_op=False)
        error = str(caught.value)
    received = torch.zeros(1) if comm.get_rank() else torch.ones(1)
    comm.broadcast(received, 0, async_op=False)
    assert received.item() == 1
    return error


def test_nans_are_looked_for_under_the_new_rank(ranks: MakeRanks) -> None:
    first, last = ranks(2).run(checks_for_nans)
    assert first == ""
    assert "rank 0, tensor 0" in last


def changes(rank: Rank, per_host: int) -> None:
    store = rank.store(f"changes {per_host}")
    comm = open_comm(rank, per_host)
    for call in (
        lambda: comm.barrier(async_op=False),
        lambda: comm.split([0]),
        lambda: comm.new_window(),
    ):
        with pytest.raises(torchcomms.CommError, match="needs a call of reconfigure"):
            call()
    assert not comm.is_aborted()

    store.set(f"handle/{rank.rank}", comm.get_init_handle())
    handles = [store.get(f"handle/{r}").decode() for r in range(rank.size)]
    assert len(set(handles)) == rank.size
    assert comm.get_init_handle() == handles[rank.rank]

    def become(uuid: str, processes: list[int]) -> None:
        if rank.rank in processes:
            comm.reconfigure(uuid, [handles[p] for p in processes])
            assert members(comm, rank) == processes
            assert comm.get_options().timeout == GUARD
            assert comm.get_init_handle() == handles[rank.rank]

    become("all", [0, 1, 2, 3])
    become("permuted", [2, 0, 3, 1])
    become("shrunk", [3, 1])
    if rank.rank in (0, 2):  # of no use: the others have left
        with pytest.raises(torchcomms.PeerLostError):
            comm.barrier(async_op=False)
    become(
        "split brain 1" if rank.rank < 2 else "split brain 2", [0, 1] if rank.rank < 2 else [3, 2]
    )
    become("merged", [3, 2, 1, 0])
    become("without 3", [0, 1, 2])
    become("3 instead of 0", [3, 1, 2])

    comm.reconfigure(17, set(handles))  # in no order
    assert sorted(members(comm, rank)) == [0, 1, 2, 3]
    child = comm.split([1, 0] if comm.get_rank() < 2 else [3, 2], "child")
    assert child is not None
    child.barrier(async_op=False)
    store.set(f"child/{rank.rank}", child.get_init_handle())
    others = sorted(store.get(f"child/{r}").decode() for r in range(rank.size))
    child.reconfigure("grown child", others)
    assert child.get_size() == 4
    child.finalize()
    comm.finalize()
    with pytest.raises(torchcomms.CommError, match="already finalized"):
        comm.reconfigure("late", handles)


@HOSTS
def test_members_change(ranks: MakeRanks, per_host: int) -> None:
    ranks(4).run(changes, per_host)


def leaves_work(rank: Rank, per_host: int) -> None:
    store = rank.store(f"leaves work {per_host}")
    comm = open_comm(rank, per_host)
    store.set(f"handle/{rank.rank}", comm.get_init_handle())
    handles = [store.get(f"handle/{r}").decode() for r in range(rank.size)]
    comm.reconfigure("before", handles)
    works = [comm.recv(torch.ones(4), (rank.rank + 1) % rank.size, async_op=True)]
    if rank.rank == 0:
        works.append(comm.all_reduce(torch.ones(1 << 20), ReduceOp.SUM, async_op=True))
    comm.reconfigure("after", handles)
    for work in works:
        with pytest.raises(torchcomms.AbortedError, match="has changed its members"):
            work.wait()
    assert members(comm, rank) == list(range(rank.size))
    assert not comm.is_aborted()
    comm.finalize()


@HOSTS
def test_what_was_in_flight_fails(ranks: MakeRanks, per_host: int) -> None:
    ranks(4).run(leaves_work, per_host)


def survives(rank: Rank, per_host: int) -> list[int] | None:
    store = rank.store("survives")
    comm = open_comm(rank, per_host)
    told: list[str] = []
    comm.register_abort_hook(lambda: told.append("broken"))
    comm.register_pre_hook(lambda name, _id, _args: told.append(name.name))
    store.set(f"handle/{rank.rank}", comm.get_init_handle())
    handles = [store.get(f"handle/{r}").decode() for r in range(rank.size)]
    comm.reconfigure("first", handles)
    work = comm.all_reduce(torch.ones(1), ReduceOp.SUM, async_op=True)
    work.wait()
    rank.say("ready")
    rank.listen()  # rank 1 is killed here
    with pytest.raises(torchcomms.PeerLostError) as error:
        comm.barrier(async_op=False)
    assert error.value.ranks == [1]
    assert comm.is_aborted()
    assert told == ["reconfigure", "all_reduce", "barrier", "broken"]
    comm.reconfigure("without the dead", [handles[2], handles[0]])
    assert not comm.is_aborted()
    found = members(comm, rank)
    store.set(f"done/{rank.rank}", "")  # an abort would end what the other is still in
    store.wait(["done/0", "done/2"])
    told.clear()
    comm.abort()
    assert told == ["broken"]  # once again, as it had been mended
    with pytest.raises(torchcomms.AbortedError):
        comm.barrier(async_op=False)
    comm.reconfigure("after the abort", [handles[0], handles[2]])
    assert members(comm, rank) == [0, 2]
    return found


@HOSTS
def test_survivors_go_on(fresh_ranks: MakeRanks, per_host: int) -> None:
    outcomes = outcomes_without(fresh_ranks(3).start(survives, per_host), 1)
    assert outcomes[1] == Died(-signal.SIGKILL)
    assert [outcomes[r] for r in (0, 2)] == [Returned([2, 0])] * 2


def refuses(rank: Rank, per_host: int) -> None:
    store = rank.store(f"refuses {per_host}")
    comm = open_comm(rank, per_host)
    store.set(f"handle/{rank.rank}", comm.get_init_handle())
    handles = [store.get(f"handle/{r}").decode() for r in range(rank.size)]
    own = handles[rank.rank]
    comm.reconfigure("first", handles)
    for message, wrong in [
        ("own handle is not among", [handles[1 - rank.rank]]),
        ("appears multiple times", [own, own]),
        ("needs the handles", []),
        ("handle 1 of the members is none", [own, "fake:0"]),
        ("handle 1 of the members is none", [own, own[:-1] + "x"]),
    ]:
        with pytest.raises(torchcomms.CommError, match=message) as refused:
            comm.reconfigure("wrong", wrong)
        assert own[6:-1] not in str(refused.value)  # the key is in it
    for no_list in ("text", 3):
        with pytest.raises(TypeError, match="list or a set"):
            comm.reconfigure("wrong", no_list)  # type: ignore[arg-type]

    # Somebody does not come, or means something else: the communicator is as before.
    if rank.rank == 0:
        with pytest.raises(torchcomms.CommTimeoutError) as error:
            comm.reconfigure("alone", handles, timeout=timedelta(milliseconds=100))
        assert error.value.ranks == [1]
    assert members(comm, rank) == [0, 1]
    with pytest.raises(torchcomms.CommError):
        comm.reconfigure(f"mine {rank.rank}", handles, timeout=timedelta(milliseconds=300))
    assert members(comm, rank) == [0, 1]
    comm.reconfigure("again", handles)
    assert members(comm, rank) == [0, 1]

    plain = rank.comm("ctran")
    with pytest.raises(torchcomms.CommError, match="enable_reconfigure=True"):
        plain.reconfigure("plain", handles)


@HOSTS
def test_what_cannot_be_is_refused(ranks: MakeRanks, per_host: int) -> None:
    ranks(2).run(refuses, per_host)


def is_watched(rank: Rank, per_host: int, aborts: bool) -> None:
    store = rank.store(f"watched {per_host} {aborts}")
    comm = open_comm(rank, per_host)
    store.set(f"handle/{rank.rank}", comm.get_init_handle())
    handles = [store.get(f"handle/{r}").decode() for r in range(rank.size)]
    comm.reconfigure("first", handles)
    with asked_by_other_threads(comm, aborts=aborts):
        for i in range(20):
            try:
                comm.reconfigure(f"again {i}", handles)
                comm.barrier(async_op=False)
            except torchcomms.CommError:
                assert aborts


@HOSTS
@pytest.mark.parametrize("aborts", [False, True], ids=["asked", "aborted"])
def test_other_threads_ask_and_abort_meanwhile(
    fresh_ranks: MakeRanks, per_host: int, aborts: bool
) -> None:
    fresh_ranks(2).run(is_watched, per_host, aborts)
