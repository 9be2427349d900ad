"""Ctrl-C in synchronous calls: they end with their operations, and the other ranks hear of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from harness import Rank, Ranks
from harness.failing import all_reduce, barrier, error_of, until, until_blocked
from harness.ranks import state_of

import torchcomms
from torchcomms import BatchP2POptions, ReduceOp, TorchComm, TorchCommWindow

MakeRanks = Callable[[int], Ranks]
BACKEND = "ctran"
WORLDS = pytest.mark.parametrize("hosts", [1, 2], ids=["one host", "two hosts"])


def waits_in_a_thread_and_calls(rank: Rank, hosts: int) -> str:
    comm = rank.comm(BACKEND, hosts)
    if rank.rank == 1:
        rank.listen()
        never_sent = torch.ones(4)
        return str(error_of(lambda: comm.recv(never_sent, 0, False), torchcomms.AbortedError))
    work = comm.all_reduce(torch.ones(4), ReduceOp.SUM, async_op=True)
    errors: list[str] = []
    ended, waiting = threading.Event(), threading.Event()
    work.add_done_callback(lambda _: ended.set())

    def wait() -> None:
        waiting.set()
        errors.append(str(error_of(work.wait, torchcomms.AbortedError)))

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    rank.say("calling")
    with pytest.raises(KeyboardInterrupt):
        all_reduce(comm)
    thread.join()
    assert ended.wait(30)
    return errors[0]


@WORLDS
def test_ctrl_c_ends_a_call_while_a_thread_waits_for_a_work(
    fresh_ranks: MakeRanks, hosts: int
) -> None:
    ranks = fresh_ranks(2)
    job = ranks.start(waits_in_a_thread_and_calls, hosts)
    until_blocked(job, 0)
    ranks.processes[0].signal(signal.SIGINT)
    until(lambda: 0 in job.ended(), "the interrupted call has ended")
    job.say(1)
    for message in job.results():
        assert "rank 0 was interrupted" in message


def batch(comm: TorchComm) -> None:
    messages = comm.batch_op_create()
    messages.send(torch.ones(4), 1)
    messages.recv(torch.ones(4), 1)
    messages.recv(torch.ones(2), 1)
    messages.issue(False, BatchP2POptions())


def recv_behind_another(comm: TorchComm) -> None:
    comm.recv(torch.ones(4), 1, async_op=True)
    comm.recv(torch.ones(4), 1, async_op=False)


CALLS: dict[str, Callable[[TorchComm], object]] = {
    "batch": batch,
    "recv": lambda comm: comm.recv(torch.ones(4), 1, async_op=False),
    "recv behind another": recv_behind_another,
}


def is_interrupted(rank: Rank, call: str, hosts: int) -> list[str]:
    hints = {"ctran::host": f"host{rank.host(hosts)}"} if hosts > 1 else {}
    # An operation that goes on, and fails when nobody looks, would end the process.
    comm = rank.new_comm(
        BACKEND, f"{call} {hosts}", hints=hints, abort_process_on_timeout_or_error=True
    )
    barrier(comm)
    if rank.rank == 0:
        rank.say("calling")
        with pytest.raises(KeyboardInterrupt):
            CALLS[call](comm)
    else:
        rank.listen()
    errors = [error_of(lambda: barrier(comm), torchcomms.AbortedError) for _ in range(2)]
    assert comm.is_aborted()
    return [str(error) for error in errors]


@WORLDS
@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_fails_the_communicator_of_a_call(
    fresh_ranks: MakeRanks, call: str, hosts: int
) -> None:
    ranks = fresh_ranks(2)
    job = ranks.start(is_interrupted, call, hosts)
    until_blocked(job, 0)
    ranks.processes[0].signal(signal.SIGINT)
    until(lambda: 0 in job.ended(), "the interrupted rank has ended")
    job.say(1)
    for message in (message for messages in job.results() for message in messages):
        assert "rank 0 was interrupted" in message


def is_interrupted_on_gloo(rank: Rank, behind: bool) -> str | None:
    if rank.rank == 1:
        comm = rank.new_comm("gloo", f"gloo {behind}")
        rank.listen()
        return None
    comm = rank.new_comm("gloo", f"gloo {behind}", abort_process_on_timeout_or_error=True)
    if behind:
        comm.all_reduce(torch.ones(4), ReduceOp.SUM, async_op=True)
    rank.say("calling")
    with pytest.raises(KeyboardInterrupt):
        barrier(comm) if behind else recv_behind_another(comm)
    return str(error_of(lambda: barrier(comm), torchcomms.AbortedError))


@pytest.mark.skipif(not torchcomms.is_backend_built("gloo"), reason="built with USE_GLOO=0")
@pytest.mark.parametrize("behind", [False, True], ids=["message", "behind another"])
def test_ctrl_c_breaks_a_communicator_of_gloo(fresh_ranks: MakeRanks, behind: bool) -> None:
    ranks = fresh_ranks(2)
    job = ranks.start(is_interrupted_on_gloo, behind)
    until_blocked(job, 0)
    ranks.processes[0].signal(signal.SIGINT)
    until(lambda: 0 in job.ended(), "the interrupted rank has ended")
    job.say(1)
    assert "rank 0 was interrupted" in job.results()[0]


COUNT = 1_000_000

ONE_SIDED: dict[str, Callable[[TorchCommWindow], object]] = {
    "wait_signal": lambda window: window.wait_signal(1, False),
    "put": lambda window: window.put(torch.ones(COUNT), 1, 0, False),
    "get": lambda window: window.get(torch.ones(COUNT), 1, 0, False),
    "flush": lambda window: window.flush(1, False),
}


def is_interrupted_in_a_window(rank: Rank, call: str, hosts: int) -> str:
    comm = rank.comm(BACKEND, hosts)
    # Memory that others cannot map, so that its owner has to serve it.
    window = comm.new_window(torch.from_numpy(np.zeros(COUNT, dtype=np.float32)))
    if rank.rank == 0:
        rank.listen()  # until rank 1, which serves what it exposes, is stopped
        rank.say("calling")
        with pytest.raises(KeyboardInterrupt):
            ONE_SIDED[call](window)
        rank.say("interrupted")
    else:
        rank.say("open")
        rank.listen()
    # It is the window that is broken: an interrupted wait does not take the next signal.
    error = error_of(lambda: window.wait_signal(1 - rank.rank, False), torchcomms.AbortedError)
    all_reduce(comm)
    return str(error)


@WORLDS
@pytest.mark.parametrize("call", ONE_SIDED)
def test_ctrl_c_breaks_the_window_of_a_call(fresh_ranks: MakeRanks, call: str, hosts: int) -> None:
    ranks = fresh_ranks(2)
    job = ranks.start(is_interrupted_in_a_window, call, hosts)
    assert job.hear(1) == "open"
    ranks.processes[1].signal(signal.SIGSTOP)
    until(lambda: state_of(ranks.processes[1].pid) == "T", "rank 1 is stopped")
    job.say(0)
    until_blocked(job, 0)
    ranks.processes[0].signal(signal.SIGINT)
    assert job.hear(0) == "interrupted"
    ranks.processes[1].signal(signal.SIGCONT)
    job.say(1)
    for message in job.results():
        assert "rank 0 was interrupted" in message
