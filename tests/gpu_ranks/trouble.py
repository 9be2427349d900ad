"""Late ranks, dead ranks, aborts, ranks that disagree: what the program gets to know."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import timedelta
from typing import Any

import torch
from harness import Died, Rank, Returned
from harness.failing import error_of

import torchcomms
from gpu_ranks import BACKEND, Make, case
from torchcomms import ReduceOp, WorkStatus

SOON = timedelta(seconds=1)
SMALL, LARGE = 1000, 2_000_000


def _tensor(rank: Rank, count: int = SMALL) -> torch.Tensor:
    return torch.ones(count, device=rank.device(BACKEND))


def _works_again(rank: Rank) -> None:
    """On a new communicator: the device is as it was."""
    fresh = rank.new_comm(BACKEND, "fresh")
    tensor = _tensor(rank)
    fresh.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait()
    rank.synchronize(BACKEND)
    assert tensor.cpu()[0] == rank.size
    fresh.finalize()


def _refused(rank: Rank) -> None:
    comm = rank.comm(BACKEND)
    tensor = _tensor(rank)
    told = str(error_of(lambda: comm.send(tensor, rank.rank, async_op=False)))
    assert "cannot send to itself" in told, told
    told = str(error_of(lambda: comm.recv(tensor, rank.rank, async_op=True)))
    assert "cannot send to itself" in told, told
    told = str(error_of(lambda: comm.all_reduce(tensor, ReduceOp.BAND, async_op=False)))
    assert "band" in told, told
    # The communicator is as it was.
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    rank.synchronize(BACKEND)
    assert tensor.cpu()[0] == rank.size


@case(world=2)
def wrong_calls_are_refused_and_break_nothing(make: Make) -> None:
    make(2).run(_refused)


def _late(rank: Rank, async_op: bool, count: int) -> Any:
    comm = rank.new_comm(BACKEND, "late")
    comm.barrier(async_op=False)
    rank.synchronize(BACKEND)
    if rank.rank == 1:
        rank.listen()  # until the others have given up
        error = error_of(lambda: comm.all_reduce(_tensor(rank), ReduceOp.SUM, async_op))
        _works_again(rank)
        return str(error), error.ranks
    work = comm.all_reduce(_tensor(rank, count), ReduceOp.SUM, async_op, timeout=SOON)
    error = error_of(work.wait_blocking, torchcomms.CommTimeoutError)
    assert work.status == WorkStatus.TIMEDOUT
    assert comm.is_aborted()
    rank.synchronize(BACKEND)  # the stream is free again
    rank.say("gave up")
    _works_again(rank)
    return str(error), error.ranks


def _expect_late(make: Make, async_op: bool, count: int) -> None:
    job = make(2).start(_late, async_op, count)
    assert job.hear(0) == "gave up"
    job.say(1)
    (first, who_first), (_, who_second) = job.results()
    assert who_first == [1], first
    assert "all_reduce of communicator 'late' (rank 0 of 2)" in first, first
    assert "it has not been called on rank 1" in first, first
    assert who_second == [1], who_second


@case(world=2, breaks=True)
def a_late_rank_is_named_sync(make: Make) -> None:
    _expect_late(make, async_op=False, count=SMALL)


@case(world=2, breaks=True)
def a_late_rank_is_named_async(make: Make) -> None:
    _expect_late(make, async_op=True, count=LARGE)


def _aborted(rank: Rank, count: int) -> Any:
    comm = rank.new_comm(BACKEND, "aborted")
    comm.barrier(async_op=False)
    rank.synchronize(BACKEND)
    if rank.rank == rank.size - 1:
        rank.listen()  # until the others wait
        comm.abort()
        assert comm.is_aborted()
        error = error_of(lambda: comm.barrier(async_op=False), torchcomms.AbortedError)
        return error.ranks, 0.0
    work = comm.all_reduce(_tensor(rank, count), ReduceOp.SUM, async_op=True)
    rank.say("waiting")
    error = error_of(work.wait_blocking, torchcomms.AbortedError)
    rank.synchronize(BACKEND)
    return error.ranks, 0.0


@case(world=2, breaks=True)
def an_abort_ends_all_ranks(make: Make) -> None:
    for count in (SMALL, LARGE):
        job = make(2).start(_aborted, count)
        job.hear(0)
        job.say(1)
        assert [ranks for ranks, _ in job.results()] == [[1], [1]]


def _aborts_itself(rank: Rank) -> float:
    """Milliseconds from abort() to the end of the kernel."""
    comm = rank.new_comm(BACKEND, "own")
    comm.barrier(async_op=False)
    rank.synchronize(BACKEND)
    taken = 0.0
    if rank.rank == 0:
        work = comm.all_reduce(_tensor(rank), ReduceOp.SUM, async_op=False)
        began: list[float] = []

        def end() -> None:
            began.append(time.perf_counter())
            comm.abort()

        timer = threading.Timer(0.3, end)
        timer.start()
        rank.synchronize(BACKEND)
        taken = (time.perf_counter() - began[0]) * 1e3
        timer.join()
        error = error_of(work.wait_blocking, torchcomms.AbortedError)
        assert "abort() was called on rank 0" in str(error)
    _works_again(rank)
    return taken


@case(world=2, breaks=True)
def an_abort_from_another_thread_frees_the_device(make: Make) -> None:
    taken = make(2).run(_aborts_itself)[0]
    print(f"       the kernel ended {taken:.2f} ms after abort()")


def _dies(rank: Rank) -> Any:
    comm = rank.new_comm(BACKEND, "killed", timeout=timedelta(seconds=60))
    comm.barrier(async_op=False)
    rank.synchronize(BACKEND)
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    work = comm.all_reduce(_tensor(rank), ReduceOp.SUM, async_op=True)
    error = error_of(work.wait_blocking, torchcomms.PeerLostError)
    rank.synchronize(BACKEND)
    return error.ranks


@case(world=2, breaks=True)
def a_dead_rank_is_noticed_at_once(make: Make) -> None:
    outcomes = make(2).start(_dies).outcomes()
    assert outcomes == [Returned([1]), Died(-signal.SIGKILL)], outcomes


def _leaves(rank: Rank) -> Any:
    comm = rank.new_comm(BACKEND, "left", timeout=timedelta(seconds=60))
    comm.barrier(async_op=False)
    rank.synchronize(BACKEND)
    if rank.rank == 1:
        comm.finalize()
        comm.abort()  # of no account: the others go on without this rank
        return None
    rank.listen()
    work = comm.all_reduce(_tensor(rank), ReduceOp.SUM, async_op=True)
    error = error_of(work.wait_blocking, torchcomms.PeerLostError)
    assert "has left communicator" in str(error), error
    rank.synchronize(BACKEND)
    return error.ranks


@case(world=2, breaks=True)
def a_rank_that_has_left_is_named(make: Make) -> None:
    job = make(2).start(_leaves)
    job.say(0)
    assert job.results() == [[1], None]


def _refused_late(rank: Rank) -> None:
    """What is refused where the kernels are launched has sent nothing, and does not count."""
    comm = rank.new_comm(BACKEND, "refused")
    if rank.rank == 0:
        tensor = _tensor(rank, 4)
        told = str(
            error_of(
                lambda: comm.all_to_all_v_single(tensor, tensor, [1, 2], [1, 3], async_op=False)
            )
        )
        assert "in place" in told, told
        batch = comm.batch_op_create()
        own = _tensor(rank, 4)
        batch.send(_tensor(rank, 4), 1)
        batch.recv(_tensor(rank, 4), 1)
        batch.send(own, 1)
        batch.recv(own[:2], 1)
        told = str(error_of(lambda: batch.issue(async_op=True)))
        assert "in place" in told, told
    received = torch.zeros(3, device=rank.device(BACKEND))
    batch = comm.batch_op_create()
    if rank.rank == 0:
        batch.send(3 * _tensor(rank, 3), 1)
    else:
        batch.recv(received, 0)
    batch.issue(async_op=False)
    for _ in range(3):
        tensor = _tensor(rank)
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        rank.synchronize(BACKEND)
        assert tensor.cpu()[0] == rank.size
    if rank.rank == 1:
        assert received.cpu().tolist() == [3, 3, 3]
    comm.finalize()


@case(world=2)
def what_is_refused_does_not_count(make: Make) -> None:
    make(2).run(_refused_late)


def _forks(rank: Rank) -> None:
    comm = rank.new_comm(BACKEND, "forked")
    tensor = _tensor(rank)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    child = os.fork()
    if child == 0:
        comm.abort()
        del comm
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    for _ in range(3):
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    rank.synchronize(BACKEND)
    assert tensor.cpu()[0] == rank.size**4
    comm.finalize()


@case(world=2, breaks=True)
def a_forked_child_leaves_the_others_alone(make: Make) -> None:
    make(2).run(_forks)


def _disagrees(rank: Rank) -> str:
    comm = rank.new_comm(BACKEND, "disagree")
    comm.barrier(async_op=False)
    rank.synchronize(BACKEND)
    tensor = _tensor(rank)
    if rank.rank == 0:
        work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=True)
    else:
        work = comm.broadcast(tensor, 0, async_op=True)

    def look() -> None:
        work.wait_blocking()
        for _ in range(1000):  # what was sent may have been enough for the kernel
            comm.barrier(async_op=False).wait_blocking()

    error = error_of(look, torchcomms.MismatchError)
    return str(error)


@case(world=2, breaks=True)
def ranks_that_disagree_are_told(make: Make) -> None:
    for told in make(2).run(_disagrees):
        assert "all_reduce" in told, told
        assert "broadcast" in told, told


def _exchange_splits(rank: Rank, comm: torchcomms.TorchComm, sent: int, expected: int) -> None:
    """Rank 0 sends rank 1 `sent` elements, which expects `expected`; 7 go back."""
    out, into = ([0, sent], [0, 7]) if rank.rank == 0 else ([7, 0], [expected, 0])
    source, result = _tensor(rank, sum(out)), _tensor(rank, sum(into))
    comm.all_to_all_v_single(result, source, into, out, async_op=False).wait_blocking()


def _send_other(rank: Rank, comm: torchcomms.TorchComm, sent: int, expected: int) -> None:
    if rank.rank == 0:
        comm.send(_tensor(rank, sent), 1, async_op=False).wait_blocking()
    else:
        comm.recv(_tensor(rank, expected), 0, async_op=False).wait_blocking()


def _send_tagged(rank: Rank, comm: torchcomms.TorchComm, sent: int, expected: int) -> None:
    batch = comm.batch_op_create()
    if rank.rank == 0:
        batch.send(_tensor(rank), 1, tag=sent)
    else:
        batch.recv(_tensor(rank), 0, tag=expected)
    batch.issue(async_op=False).wait_blocking()


UNEXPECTED = {
    "splits": (_exchange_splits, "bytes"),
    "messages": (_send_other, "bytes"),
    "tags": (_send_tagged, "with tag"),
}


def _gets_another(rank: Rank, what: str, sent: int, expected: int) -> str:
    comm = rank.new_comm(BACKEND, "unexpected")
    exchange, _ = UNEXPECTED[what]
    exchange(rank, comm, 5, 5)
    rank.synchronize(BACKEND)

    def look() -> None:
        exchange(rank, comm, sent, expected)
        for _ in range(1000):  # the sender may be done before the receiver has looked
            comm.barrier(async_op=False).wait_blocking()

    error = error_of(look, torchcomms.MismatchError)
    assert error.ranks == [0, 1], error.ranks
    rank.synchronize(BACKEND)
    _works_again(rank)
    return str(error)


@case(world=2, breaks=True)
def what_is_not_expected_is_refused(make: Make) -> None:
    """Neither of several steps, nor of one, nor of nothing."""
    for what, (_, unit) in UNEXPECTED.items():
        counts = [(1, 2)] if what == "tags" else [(LARGE, LARGE // 2), (SMALL, LARGE), (9, 8)]
        if what == "splits":
            counts += [(0, 3), (3, 0)]
        for sent, expected in counts:
            for told in make(2).run(_gets_another, what, sent, expected):
                size = 4 if unit == "bytes" else 1
                assert f"{sent * size} {unit}" in told or f"{unit} {sent}" in told, told
                assert f"{expected * size} {unit}" in told or f"{unit} {expected}" in told, told


def _waits_longer(rank: Rank, replayed: bool) -> None:
    """A call may wait for longer than others of its communicator, in its kernel and in replays."""
    comm = rank.new_comm(BACKEND, "patient", timeout=SOON)
    tensor = _tensor(rank)
    call = lambda: comm.all_reduce(  # noqa: E731
        tensor, ReduceOp.SUM, async_op=False, timeout=timedelta(seconds=60)
    )
    call()
    rank.synchronize(BACKEND)
    step = rank.gpu().capture(call) if replayed else call
    tensor.fill_(1.0)
    rank.synchronize(BACKEND)
    if rank.rank == 1:
        time.sleep(4 * SOON.total_seconds())
    step()
    rank.synchronize(BACKEND)
    assert (tensor.cpu() == rank.size).all()
    comm.finalize()


@case(world=2)
def a_call_may_wait_longer_than_its_communicator(make: Make) -> None:
    for replayed in (False, True):
        make(2).run(_waits_longer, replayed)


def _replays_alone(rank: Rank) -> Any:
    comm = rank.new_comm(BACKEND, "alone", timeout=SOON)
    tensor = _tensor(rank)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    rank.synchronize(BACKEND)
    replay = rank.gpu().capture(lambda: comm.all_reduce(tensor, ReduceOp.SUM, async_op=False))
    if rank.rank == 1:
        rank.listen()
        return None
    replay()
    rank.synchronize(BACKEND)  # the kernel gives up by itself
    while not comm.is_aborted():
        pass
    error = error_of(lambda: comm.barrier(async_op=False), torchcomms.CommTimeoutError)
    rank.say("done")
    return error.ranks


@case(world=2, breaks=True)
def a_replay_without_the_others_times_out(make: Make) -> None:
    job = make(2).start(_replays_alone)
    job.hear(0)
    job.say(1)
    assert job.results()[0] == [1]


def _spins(rank: Rank, replayed: bool) -> Any:
    """Rank 1 is killed while its kernel waits for rank 0, which comes when it is dead."""
    comm = rank.new_comm(BACKEND, "spins", timeout=timedelta(seconds=60))
    tensor = _tensor(rank)
    call = lambda: comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)  # noqa: E731
    call()
    rank.synchronize(BACKEND)
    replay = rank.gpu().capture(call) if replayed else call
    if rank.rank == 1:
        replay()
        rank.say("spins")
        rank.synchronize(BACKEND)
        return "the kernel has ended"
    rank.say("ready")
    rank.listen()

    def come() -> None:
        while True:  # what the dead rank had sent may be enough for the first one
            replay()
            rank.synchronize(BACKEND)
            comm.barrier(async_op=False).wait_blocking()

    error = error_of(come, torchcomms.PeerLostError)
    rank.synchronize(BACKEND)
    tensor.fill_(3.0)
    assert tensor.cpu().sum() == 3 * SMALL  # the device works
    return error.ranks


def _expect_killed(make: Make, replayed: bool) -> None:
    ranks = make(2)
    job = ranks.start(_spins, replayed)
    assert job.hear(0) == "ready"
    assert job.hear(1) == "spins"
    ranks.processes[1].signal(signal.SIGKILL)
    job.say(0)
    outcomes = job.outcomes()
    assert outcomes == [Returned([1]), Died(-signal.SIGKILL)], outcomes


@case(world=2, breaks=True)
def a_rank_killed_inside_a_kernel_is_named(make: Make) -> None:
    _expect_killed(make, replayed=False)


@case(world=2, breaks=True)
def a_rank_killed_inside_a_replay_is_named(make: Make) -> None:
    _expect_killed(make, replayed=True)


def _dies_under_a_replay(rank: Rank) -> Any:
    """Rank 0 waits inside a replay for a rank that dies meanwhile."""
    comm = rank.new_comm(BACKEND, "widow", timeout=timedelta(seconds=60))
    tensor = _tensor(rank)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    rank.synchronize(BACKEND)
    replay = rank.gpu().capture(lambda: comm.all_reduce(tensor, ReduceOp.SUM, async_op=False))
    if rank.rank == 1:
        rank.listen()
        os.kill(os.getpid(), signal.SIGKILL)
    replay()
    rank.say("replays")
    rank.synchronize(BACKEND)  # the kernel is ended
    error = error_of(lambda: comm.barrier(async_op=False), torchcomms.PeerLostError)
    return error.ranks


@case(world=2, breaks=True)
def a_replay_ends_when_a_rank_dies(make: Make) -> None:
    job = make(2).start(_dies_under_a_replay)
    assert job.hear(0) == "replays"
    job.say(1)
    outcomes = job.outcomes()
    assert outcomes == [Returned([1]), Died(-signal.SIGKILL)], outcomes


def _aborts_replay(rank: Rank, count: int) -> float:
    """Milliseconds from abort() on another thread to the end of a replay that waits."""
    comm = rank.new_comm(BACKEND, "replayed")
    tensor = _tensor(rank, count)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    rank.synchronize(BACKEND)
    replay = rank.gpu().capture(lambda: comm.all_reduce(tensor, ReduceOp.SUM, async_op=False))
    taken = 0.0
    if rank.rank == 1:
        rank.say("captured")  # before abort() ends what it does there
    else:
        rank.listen()
        replay()
        began: list[float] = []

        def end() -> None:
            began.append(time.perf_counter())
            comm.abort()

        thread = threading.Thread(target=end)
        thread.start()
        rank.synchronize(BACKEND)
        taken = (time.perf_counter() - began[0]) * 1e3
        thread.join()
        error_of(lambda: comm.barrier(async_op=False), torchcomms.AbortedError)
        replay()  # does nothing any more
        rank.synchronize(BACKEND)
    _works_again(rank)
    return taken


@case(world=2, breaks=True)
def an_abort_from_another_thread_ends_a_replay(make: Make) -> None:
    for count in (SMALL, LARGE):
        job = make(2).start(_aborts_replay, count)
        job.hear(1)
        job.say(0)
        taken = job.results()[0]
        print(f"       the replay of {count} elements ended {taken:.2f} ms after abort()")


def _delayed(rank: Rank, async_op: bool) -> None:
    """A rank that is late, but not too late, is waited for: eager and in replays."""
    comm = rank.new_comm(BACKEND, "delayed")
    tensor = _tensor(rank)
    call = lambda: comm.all_reduce(tensor, ReduceOp.SUM, async_op).wait()  # noqa: E731
    call()
    rank.synchronize(BACKEND)
    replay = rank.gpu().capture(call)
    for number, step in enumerate((call, replay) * 4):
        late = number // 2 % rank.size
        tensor.fill_(1.0)
        rank.synchronize(BACKEND)
        rank.gpu().delay(late == rank.rank)
        if late == rank.rank and number < 2:
            rank.listen()
        elif number < 2:
            rank.say("waits")
        step()
        rank.synchronize(BACKEND)
        assert (tensor.cpu() == rank.size).all()
    comm.finalize()


@case(world=2)
def a_delayed_rank_is_waited_for(make: Make) -> None:
    for async_op in (False, True):
        job = make(2).start(_delayed, async_op)
        for _ in range(2):
            assert job.hear(1) == "waits"
            job.say(0)
        job.results()
