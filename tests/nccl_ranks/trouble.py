"""Wrong calls, late ranks, dead ranks, aborts: what the program gets to know, and that it does."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from harness import Died, Raised, Rank, Returned
from harness.failing import error_of

import torchcomms
from nccl_ranks import Make, case
from torchcomms import ReduceOp, WorkStatus

SOON = timedelta(seconds=2)
NON_BLOCKING = {"blocking": "0"}


def _tensor(rank: Rank, count: int = 1000, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(count, dtype=dtype, device=rank.device("nccl"))


def _refused(rank: Rank) -> None:
    comm = rank.comm("nccl")
    bits = _tensor(rank, dtype=torch.int32)
    told = str(error_of(lambda: comm.all_reduce(bits, ReduceOp.BAND, async_op=False)))
    assert "Cannot use ReduceOp.BAND with NCCL" in told, told
    short = _tensor(rank, dtype=torch.int16)
    told = str(error_of(lambda: comm.all_reduce(short, ReduceOp.SUM, async_op=False)))
    assert "Short" in told, told
    told = str(error_of(lambda: comm.send(bits, rank.rank, async_op=False)))
    assert "Cannot send to self" in told, told
    hints = {"blocking": "maybe"}
    told = str(error_of(lambda: rank.new_comm("nccl", "x", hints=hints), ValueError))
    assert told == "Invalid hint value for key 'blocking': maybe", told
    told = str(error_of(lambda: torchcomms.new_comm("nccl", torch.device("meta"))))
    assert "has no support for device" in told, told
    # The communicator is as it was.
    tensor = _tensor(rank)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    rank.synchronize("nccl")
    assert tensor.cpu()[0] == rank.size


@case(world=2)
def wrong_calls_are_refused_and_break_nothing(make: Make) -> None:
    make(2).run(_refused)


def _all_reduce(comm: Any, rank: Rank, async_op: bool) -> None:
    comm.all_reduce(_tensor(rank), ReduceOp.SUM, async_op).wait_blocking()


def _device_works(rank: Rank) -> None:
    """Whether it still computes, for this process."""
    tensor = _tensor(rank)
    tensor.mul_(3.0)
    rank.synchronize("nccl")
    assert tensor.sum().item() == 3000.0


def _late(rank: Rank, async_op: bool, hints: dict[str, str]) -> Any:
    comm = rank.new_comm("nccl", "late", hints=hints)
    comm.barrier(async_op=False)
    rank.synchronize("nccl")
    if rank.rank == 1:
        rank.listen()  # until the others have given up
        # What they had sent before may still be enough for the first of these.
        error = error_of(lambda: [_all_reduce(comm, rank, async_op) for _ in range(3)])
        return str(error), error.ranks
    work = comm.all_reduce(_tensor(rank), ReduceOp.SUM, async_op, timeout=SOON)
    error = error_of(work.wait_blocking, torchcomms.CommTimeoutError)
    assert work.status == WorkStatus.TIMEDOUT
    assert work.is_completed()
    assert comm.is_aborted()
    _device_works(rank)  # its streams are free again
    again = error_of(lambda: comm.barrier(async_op=False), torchcomms.CommTimeoutError)
    assert str(again) == str(error)
    rank.say("gave up")
    return str(error), error.ranks


def _expect_late(make: Make, async_op: bool, hints: dict[str, str]) -> None:
    ranks = make(2)
    job = ranks.start(_late, async_op, hints)
    assert job.hear(0) == "gave up"
    job.say(1)
    (first, who_first), (second, who_second) = job.results()
    assert who_first == [1], first
    assert "all_reduce of communicator 'late' (rank 0 of 2)" in first
    assert "has not ended within 2000 ms" in first
    assert who_second == [0], second


@case(world=2, breaks=True)
def a_late_rank_is_named_sync(make: Make) -> None:
    _expect_late(make, False, {})


@case(world=2, breaks=True)
def a_late_rank_is_named_async(make: Make) -> None:
    _expect_late(make, True, {})


@case(world=2, breaks=True)
def a_late_rank_is_named_without_blocking(make: Make) -> None:
    _expect_late(make, True, NON_BLOCKING)


def _unseen(rank: Rank) -> None:
    comm = rank.new_comm("nccl", "unseen", abort_process_on_timeout_or_error=True)
    comm.barrier(async_op=False)
    rank.synchronize("nccl")
    if rank.rank == 0:
        comm.all_reduce(_tensor(rank), ReduceOp.SUM, async_op=False, timeout=SOON)
    rank.listen()  # nobody says anything


@case(world=2, breaks=True)
def an_error_that_nobody_sees_ends_the_process(make: Make) -> None:
    job = make(2).start(_unseen)
    process = job.ranks.processes[0]
    while 0 not in job.ended():
        pass
    job.say(1)
    outcomes = job.outcomes()
    assert outcomes[0] == Died(-signal.SIGABRT), outcomes
    said = process.said()
    assert "all_reduce failed and nobody looked at its work" in said, said
    assert "not waiting in it: rank 1" in said, said


def _aborted(rank: Rank) -> Any:
    comm = rank.new_comm("nccl", "aborted")
    comm.barrier(async_op=False)
    rank.synchronize("nccl")
    if rank.rank == rank.size - 1:
        rank.listen()  # until the others wait
        comm.abort()
        assert comm.is_aborted()
        error = error_of(lambda: comm.barrier(async_op=False), torchcomms.AbortedError)
        return error.ranks
    work = comm.all_reduce(_tensor(rank), ReduceOp.SUM, async_op=True)
    rank.say("waiting")
    error = error_of(work.wait_blocking, torchcomms.AbortedError)
    rank.synchronize("nccl")
    return error.ranks


@case(world=2, breaks=True)
def an_abort_ends_all_ranks(make: Make) -> None:
    job = make(2).start(_aborted)
    job.hear(0)
    job.say(1)
    assert job.results() == [[1], [1]]


def _aborts_and_goes(rank: Rank, name: str) -> Any:
    comm = rank.new_comm("nccl", name)
    comm.barrier(async_op=False)
    rank.synchronize("nccl")
    if rank.rank == 1:
        rank.listen()
        time.sleep(0.5)  # all has ended, and been noted: nobody else holds the communicator
        comm.abort()
        return None
    work = comm.all_reduce(_tensor(rank), ReduceOp.SUM, async_op=True)
    rank.say("waiting")
    return error_of(work.wait_blocking, torchcomms.AbortedError).ranks


@case(world=2, breaks=True)
def an_abort_is_heard_although_the_communicator_goes(make: Make) -> None:
    for i in range(4):  # each a chance to be dropped before anybody is told
        job = make(2).start(_aborts_and_goes, f"gone-{i}")
        job.hear(0)
        job.say(1)
        assert job.results() == [[1], None]


def _aborts_itself(rank: Rank, hints: dict[str, str]) -> None:
    comm = rank.new_comm("nccl", "own", hints=hints)
    comm.barrier(async_op=False)
    rank.synchronize("nccl")
    if rank.rank == 0:
        work = comm.all_reduce(_tensor(rank), ReduceOp.SUM, async_op=False)
        timer = threading.Timer(0.3, comm.abort)
        timer.start()
        error = error_of(work.wait_blocking, torchcomms.AbortedError)
        assert "abort() was called on rank 0" in str(error)
        timer.join()
        rank.synchronize("nccl")
    fresh = rank.new_comm("nccl", "fresh")
    tensor = _tensor(rank)
    fresh.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait()
    rank.synchronize("nccl")
    assert tensor.cpu()[0] == rank.size
    fresh.finalize()


@case(world=2, breaks=True)
def an_abort_from_another_thread_frees_the_device(make: Make) -> None:
    make(2).run(_aborts_itself, {})


@case(world=2, breaks=True)
def an_abort_frees_the_device_without_blocking(make: Make) -> None:
    make(2).run(_aborts_itself, NON_BLOCKING)


def _connects_alone(rank: Rank, op: str, hints: dict[str, str], aborts: bool) -> Any:
    """The first operation makes connections, for which the library waits for the others."""
    comm = rank.new_comm("nccl", f"connects-{op}", hints=hints)
    if rank.rank == 1:
        rank.listen()
        return None
    timer = threading.Timer(0.5, comm.abort)
    if aborts:
        timer.start()

    def first() -> None:
        timeout = timedelta(seconds=20) if aborts else SOON
        if op == "send":
            large = _tensor(rank, 1 << 23)  # more than may be on its way
            comm.send(large, 1, async_op=False, timeout=timeout).wait_blocking()
        else:
            comm.all_reduce(_tensor(rank), ReduceOp.SUM, False, timeout=timeout).wait_blocking()

    error = error_of(first, torchcomms.AbortedError if aborts else torchcomms.CommTimeoutError)
    assert comm.is_aborted()
    _device_works(rank)
    rank.say("gave up")
    return error.ranks


def _expect_alone(make: Make, hints: dict[str, str], aborts: bool) -> None:
    for op in ("all_reduce", "send"):
        job = make(2).start(_connects_alone, op, hints, aborts)
        job.hear(0)
        job.say(1)
        assert job.results() == [[0] if aborts else [1], None], op


@case(world=2, breaks=True)
def a_rank_that_does_not_connect_is_named(make: Make) -> None:
    _expect_alone(make, {}, aborts=False)


@case(world=2, breaks=True)
def a_rank_that_does_not_connect_is_named_without_blocking(make: Make) -> None:
    _expect_alone(make, NON_BLOCKING, aborts=False)


@case(world=2, breaks=True)
def an_abort_ends_a_call_that_connects(make: Make) -> None:
    _expect_alone(make, {}, aborts=True)


@case(world=2, breaks=True)
def an_abort_ends_a_call_that_connects_without_blocking(make: Make) -> None:
    _expect_alone(make, NON_BLOCKING, aborts=True)


def _two_stuck(rank: Rank) -> Any:
    """Ending one communicator must not wait for the other, stuck on the same device."""
    options = {"timeout": timedelta(seconds=4)}
    comms = [rank.new_comm("nccl", f"stuck-{i}", **options) for i in range(2)]
    for comm in comms:
        comm.all_reduce(_tensor(rank), ReduceOp.SUM, async_op=True).wait_blocking()
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    works = [comm.all_reduce(_tensor(rank), ReduceOp.SUM, async_op=True) for comm in comms]
    ranks = [error_of(work.wait_blocking).ranks for work in works]
    _device_works(rank)
    return ranks


@case(world=2, breaks=True)
def two_stuck_communicators_end(make: Make) -> None:
    outcomes = make(2).start(_two_stuck).outcomes()
    assert outcomes == [Returned([[1], [1]]), Died(-signal.SIGKILL)], outcomes


def _replays_alone(rank: Rank) -> None:
    comm = rank.new_comm("nccl", "replays-alone")
    tensor = _tensor(rank)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    rank.synchronize("nccl")
    replay = rank.gpu().capture(lambda: comm.all_reduce(tensor, ReduceOp.SUM, async_op=True))
    replay()
    rank.synchronize("nccl")
    if rank.rank == 1:
        rank.listen()
        return
    replay()
    comm.abort()
    _device_works(rank)
    rank.say("gave up")


def _replays_late(rank: Rank) -> Any:
    comm = rank.new_comm("nccl", "replays-late", timeout=SOON)
    tensors = [_tensor(rank) for _ in range(3)]
    comm.all_reduce(tensors[0], ReduceOp.SUM, async_op=False)
    rank.synchronize("nccl")

    def step() -> None:
        for tensor in tensors:
            comm.all_reduce(tensor, ReduceOp.MAX, async_op=True)

    replay = rank.gpu().capture(step)
    for _ in range(100):
        replay()
    rank.synchronize("nccl")
    if rank.rank == 1:
        rank.listen()
        return None
    replay()
    while not comm.is_aborted():
        pass
    error = error_of(lambda: comm.barrier(async_op=False), torchcomms.CommTimeoutError)
    assert "Operation 2, all_reduce of communicator 'replays-late'" in str(error), error
    assert "in a replay of its graph, has not ended within 2000 ms" in str(error), error
    _device_works(rank)
    rank.say("gave up")
    return error.ranks


@case(world=2, breaks=True)
def a_rank_late_to_a_replay_is_named(make: Make) -> None:
    job = make(2).start(_replays_late)
    job.hear(0)
    job.say(1)
    assert job.results() == [[1], None]


@case(world=2, breaks=True)
def an_abort_ends_a_replay(make: Make) -> None:
    job = make(2).start(_replays_alone)
    job.hear(0)
    job.say(1)
    job.results()


def _dies(rank: Rank, watched: bool) -> Any:
    os.environ["TORCHCOMMS_NCCL_WATCH_PEERS"] = str(int(watched))
    comm = rank.new_comm("nccl", "killed", timeout=timedelta(seconds=60 if watched else 4))
    comm.barrier(async_op=False)
    rank.synchronize("nccl")
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    work = comm.all_reduce(_tensor(rank), ReduceOp.SUM, async_op=True)
    kind = torchcomms.PeerLostError if watched else torchcomms.CommTimeoutError
    error = error_of(work.wait_blocking, kind)
    rank.synchronize("nccl")
    return error.ranks


@case(world=2, breaks=True)
def a_dead_rank_is_named(make: Make) -> None:
    outcomes = make(2).start(_dies, False).outcomes()
    assert outcomes == [Returned([1]), Died(-signal.SIGKILL)], outcomes


@case(world=2, breaks=True)
def a_dead_rank_is_noticed_at_once_if_asked_for(make: Make) -> None:
    outcomes = make(2).start(_dies, True).outcomes()
    assert outcomes == [Returned([1]), Died(-signal.SIGKILL)], outcomes


def _host_dies(rank: Rank) -> Any:
    """The rank that dies has the store."""
    shared = rank.store("port")
    if rank.rank == 0:
        store = dist.TCPStore("localhost", 0, None, True, wait_for_workers=False)
        shared.set("port", str(store.port))
    else:
        store = dist.TCPStore("localhost", int(shared.get("port")), None, False)
    options = torchcomms.CommOptions()
    options.rank, options.size = rank.rank, rank.size
    comm = torchcomms.new_comm(
        "nccl",
        rank.device("nccl"),
        "hosted",
        options=options,
        store=store,
        timeout=timedelta(seconds=20),
        abort_process_on_timeout_or_error=False,
    )
    _all_reduce(comm, rank, async_op=False)
    comm.all_reduce(_tensor(rank), ReduceOp.SUM, async_op=True).wait_blocking()
    if rank.rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    work = comm.all_reduce(_tensor(rank), ReduceOp.SUM, async_op=True)
    error = error_of(work.wait_blocking, torchcomms.PeerLostError)
    _device_works(rank)
    return error.ranks


@case(world=2, breaks=True)
def a_dead_host_of_the_store_is_named(make: Make) -> None:
    outcomes = make(2).start(_host_dies).outcomes()
    assert outcomes == [Died(-signal.SIGKILL), Returned([0])], outcomes


def _absent(rank: Rank) -> Any:
    if rank.rank == 1:
        return None
    error = error_of(
        lambda: rank.new_comm("nccl", "absent", timeout=SOON), torchcomms.CommTimeoutError
    )
    return error.ranks


@case(world=2, breaks=True)
def a_rank_that_never_comes_is_named(make: Make) -> None:
    assert make(2).run(_absent) == [[1], None]


def _leaves(rank: Rank) -> None:
    comm = rank.new_comm("nccl", "leaves")
    comm.all_reduce(_tensor(rank), ReduceOp.SUM, async_op=False)
    # Neither waited for nor finalized.
    part = comm.split(list(range(rank.size)))
    assert part is not None
    part.barrier(async_op=True)
    del part, comm


@case(world=2, breaks=True)
def communicators_may_be_dropped(make: Make) -> None:
    outcomes = make(2).start(_leaves).outcomes()
    assert not any(isinstance(outcome, (Raised, Died)) for outcome in outcomes), outcomes


def _leaves_early(rank: Rank) -> None:
    """A rank that has finalized and gone is not missed by those that still exchange."""
    comm = rank.new_comm("nccl", "early")
    part = comm.split([0, 1] if rank.rank < 2 else [])
    comm.barrier(async_op=False)
    rank.synchronize("nccl")
    comm.finalize()
    if part is None:
        return
    if rank.rank == 1:
        rank.listen()
    tensor = _tensor(rank)
    part.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait_blocking()
    part.finalize()


@case(world=4, breaks=True)
def a_rank_that_has_left_is_not_missed(make: Make) -> None:
    ranks = make(4)
    job = ranks.start(_leaves_early)
    while not {2, 3} <= job.ended():
        pass
    for gone in (2, 3):
        ranks.processes[gone].signal(signal.SIGKILL)
    job.say(1)
    job.outcomes()
    assert all(isinstance(outcome, Returned) for outcome in job.outcomes())


def _splits_alone(rank: Rank) -> None:
    comm = rank.new_comm("nccl", "alone", timeout=SOON)
    if rank.rank == 1:
        rank.listen()
        return
    error_of(lambda: comm.split([0]), torchcomms.CommTimeoutError)
    assert comm.is_aborted()
    error_of(lambda: comm.barrier(async_op=False), torchcomms.CommTimeoutError)


@case(world=2, breaks=True)
def a_split_of_one_rank_alone_ends(make: Make) -> None:
    job = make(2).start(_splits_alone)
    while 0 not in job.ended():
        pass
    job.say(1)
    assert all(isinstance(outcome, Returned) for outcome in job.outcomes())
