"""What ends operations on purpose: abort(), Ctrl-C, and errors that nobody waits for."""

from __future__ import annotations

import os
import re
import resource
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from harness import Died, Rank, Ranks, Returned
from harness.failing import (
    all_reduce,
    until,
    until_blocked,
    until_dead,
)

import torchcomms
from torchcomms import ReduceOp

MakeRanks = Callable[[int], Ranks]
BACKEND = "ctran"


def aborts_from_a_thread(rank: Rank) -> tuple[bool, str]:
    comm = rank.comm(BACKEND)
    if rank.rank == 2:  # never calls; is told all the same
        rank.listen()
    elif rank.rank == 0:

        def abort_when_told() -> None:
            rank.listen()
            comm.abort()

        threading.Thread(target=abort_when_told).start()
    if rank.rank != 2:
        rank.say("calling")
    with pytest.raises(torchcomms.AbortedError) as error:
        all_reduce(comm)
    return comm.is_aborted(), str(error.value)


def test_abort_from_another_thread_ends_all_calls(fresh_ranks: MakeRanks) -> None:
    job = fresh_ranks(3).start(aborts_from_a_thread)
    until_blocked(job, 0, 1)
    job.say(0)
    until(lambda: {0, 1} <= job.ended(), "the blocked calls have ended")
    job.say(2)
    for aborted, message in job.results():
        assert aborted
        assert "aborted by rank 0" in message


def is_interrupted(rank: Rank) -> str:
    comm = rank.comm(BACKEND)
    if rank.rank == 2:
        rank.listen()
    else:
        rank.say("calling")
    if rank.rank == 0:
        with pytest.raises(KeyboardInterrupt):
            all_reduce(comm)
    with pytest.raises(torchcomms.AbortedError) as error:
        all_reduce(comm)
    return str(error.value)


def test_ctrl_c_ends_a_call(fresh_ranks: MakeRanks) -> None:
    ranks = fresh_ranks(3)
    job = ranks.start(is_interrupted)
    until_blocked(job, 0, 1)
    ranks.processes[0].signal(signal.SIGINT)
    until(lambda: {0, 1} <= job.ended(), "the blocked calls have ended")
    job.say(2)
    for message in job.results():
        assert "rank 0 was interrupted" in message


def waits_and_is_interrupted(rank: Rank) -> float:
    tensor = torch.ones(4)
    comm = rank.comm(BACKEND)
    if rank.rank == 1:
        rank.listen()
    work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=True)
    if rank.rank == 0:
        rank.say("calling")
        with pytest.raises(KeyboardInterrupt):
            work.wait()
        rank.say("interrupted")
    work.wait()
    return tensor[0].item()


def test_ctrl_c_ends_a_wait_and_the_operation_goes_on(fresh_ranks: MakeRanks) -> None:
    ranks = fresh_ranks(2)
    job = ranks.start(waits_and_is_interrupted)
    until_blocked(job, 0)
    ranks.processes[0].signal(signal.SIGINT)
    assert job.hear(0) == "interrupted"
    job.say(1)
    assert job.results() == [2.0, 2.0]


def nobody_waits(rank: Rank, aborts: bool, keeps_work: bool) -> str | None:
    os.environ["TORCHCOMM_ERROR_GRACE_SECONDS"] = "0"
    comm = rank.new_comm(BACKEND, "policy", abort_process_on_timeout_or_error=aborts)
    if rank.rank == 1:
        rank.say("ready")
        rank.listen()
    work = comm.all_reduce(torch.ones(4), ReduceOp.SUM, async_op=True)
    if not keeps_work:
        del work
    rank.say("issued")
    rank.listen()
    with pytest.raises(torchcomms.PeerLostError) as error:
        work.wait() if keeps_work else all_reduce(comm)
    return str(error.value)


@pytest.mark.parametrize("keeps_work", [True, False], ids=["", "work is dropped"])
def test_an_error_that_nobody_waits_for_ends_the_process(
    fresh_ranks: MakeRanks, keeps_work: bool
) -> None:
    ranks = fresh_ranks(2)
    job = ranks.start(nobody_waits, True, keeps_work)
    assert job.hear(0) == "issued"
    assert job.hear(1) == "ready"
    ranks.processes[1].signal(signal.SIGKILL)
    assert job.outcomes()[0] == Died(-signal.SIGABRT)
    said = ranks.processes[0].said()
    assert re.search(r"rank 0 of communicator 'policy' .*all_reduce failed", said)
    assert "rank 1" in said
    assert "abort_process_on_timeout_or_error=False" in said


@pytest.mark.parametrize("keeps_work", [True, False], ids=["", "work is dropped"])
def test_the_policy_can_be_to_go_on(fresh_ranks: MakeRanks, keeps_work: bool) -> None:
    ranks = fresh_ranks(2)
    job = ranks.start(nobody_waits, False, keeps_work)
    assert job.hear(0) == "issued"
    assert job.hear(1) == "ready"
    ranks.processes[1].signal(signal.SIGKILL)
    until_dead(job, 1)
    job.say(0)
    outcome = job.outcomes()[0]
    assert isinstance(outcome, Returned)
    assert "rank 1" in outcome.value


def has_no_threads_left(rank: Rank) -> str | None:
    comm = rank.new_comm(BACKEND, "no threads", abort_process_on_timeout_or_error=True)
    if rank.rank == 1:
        rank.say("ready")
        rank.listen()
    broken = threading.Event()
    comm.register_abort_hook(broken.set)
    work = comm.all_reduce(torch.ones(4), ReduceOp.SUM, async_op=True)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    # No room for the stack of another thread.
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (4 << 20), limits[1]))
    rank.say("issued")
    broken.wait()
    resource.setrlimit(resource.RLIMIT_AS, limits)
    with pytest.raises(torchcomms.PeerLostError) as error:
        work.wait()
    return str(error.value)


def test_a_failure_is_survived_where_no_thread_can_be_started(fresh_ranks: MakeRanks) -> None:
    ranks = fresh_ranks(2)
    job = ranks.start(has_no_threads_left)
    assert job.hear(0) == "issued"
    assert job.hear(1) == "ready"
    ranks.processes[1].signal(signal.SIGKILL)
    outcome = job.outcomes()[0]
    assert isinstance(outcome, Returned)
    assert "rank 1" in outcome.value
