"""Ranks that die or leave: every other rank is told at once who it was."""

from __future__ import annotations

import os
import re
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from harness import Died, Rank, Ranks, Returned
from harness.failing import (
    all_reduce,
    all_reduce_in_rounds,
    barrier,
    recv_from_two,
    until,
    until_blocked,
    until_dead,
    wait_for_async,
)

import torchcomms

MakeRanks = Callable[[int], Ranks]
BACKEND = "ctran"
BLOCKING = {
    f.__name__: f
    for f in (all_reduce, all_reduce_in_rounds, barrier, recv_from_two, wait_for_async)
}


def fork_a_child_that_stays(rank: Rank) -> None:
    """It has all that its parent has open, and outlives it until the test lets go of both."""
    if os.fork() == 0:
        with suppress(EOFError):
            rank.listen()
        os._exit(0)


def blocked_by_two(rank: Rank, blocking: str, forks: bool) -> tuple[float, list[int], str, str]:
    """Rank 2 gets killed, the others block; says when which error came, and of the next call."""
    comm = rank.comm(BACKEND)
    if rank.rank == 2:
        if forks:
            fork_a_child_that_stays(rank)
        rank.say("ready")
        rank.listen()
    rank.say("calling")
    with pytest.raises(torchcomms.PeerLostError) as blocked:
        BLOCKING[blocking](comm)
    noticed = time.monotonic()
    with pytest.raises(torchcomms.PeerLostError) as later:
        all_reduce(comm)
    assert later.value.ranks == [2]
    return noticed, blocked.value.ranks, str(blocked.value), str(later.value)


@pytest.mark.parametrize("forks", [False, True], ids=["", "with a forked child"])
@pytest.mark.parametrize("blocking", BLOCKING)
def test_death_ends_the_calls_of_all_others(
    fresh_ranks: MakeRanks, blocking: str, forks: bool
) -> None:
    ranks = fresh_ranks(4)
    job = ranks.start(blocked_by_two, blocking, forks)
    assert job.hear(2) == "ready"
    until_blocked(job, 0, 1, 3)
    victim = os.pidfd_open(ranks.processes[2].pid)
    killed = time.monotonic()
    signal.pidfd_send_signal(victim, signal.SIGKILL)
    select.select([victim], [], [])
    died = time.monotonic()
    os.close(victim)
    outcomes = job.outcomes()
    assert outcomes[2] == Died(-signal.SIGKILL)
    delays = []
    for survivor in (0, 1, 3):
        outcome = outcomes[survivor]
        assert isinstance(outcome, Returned), outcome
        noticed, lost, message, later = outcome.value
        assert lost == [2]
        for text in (message, later):
            assert re.search(r"rank 2 \(pid \d+\) of communicator .* died", text)
        delays.append(noticed - killed)
    print(f"the kernel ended it in {(died - killed) * 1000:.2f} ms, others knew after", end=" ")
    print(", ".join(f"{delay * 1000:.2f} ms" for delay in delays))


def calls_after_death(rank: Rank) -> list[int]:
    comm = rank.comm(BACKEND)
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    rank.listen()
    with pytest.raises(torchcomms.PeerLostError) as error:
        all_reduce(comm)
    return error.value.ranks


def test_death_between_calls_is_told_by_the_next(fresh_ranks: MakeRanks) -> None:
    job = fresh_ranks(3).start(calls_after_death)
    until_dead(job, 1)
    job.say(0)
    job.say(2)
    assert job.outcomes() == [Returned([1]), Died(-signal.SIGKILL), Returned([1])]


def leaves_early(rank: Rank) -> list[int] | None:
    comm = rank.comm(BACKEND)
    if rank.rank == 1:
        comm.finalize()
        return None
    with pytest.raises(torchcomms.PeerLostError, match="rank 1 has left") as error:
        all_reduce(comm)
    return error.value.ranks


def test_a_rank_that_left_is_named_when_it_is_needed(fresh_ranks: MakeRanks) -> None:
    assert fresh_ranks(3).run(leaves_early) == [[1], None, [1]]


def leaves_first(rank: Rank) -> None:
    comm = rank.comm(BACKEND)
    all_reduce(comm)
    if rank.rank == 0:
        rank.say("calling")
        comm.finalize()
        return
    rank.listen()  # rank 0 has left
    comm.finalize()


def test_leaving_is_no_loss_to_those_who_need_nothing_more(fresh_ranks: MakeRanks) -> None:
    job = fresh_ranks(3).start(leaves_first)
    until(lambda: 0 in job.ended(), "rank 0 has finished")
    job.say(1)
    job.say(2)
    job.results()
