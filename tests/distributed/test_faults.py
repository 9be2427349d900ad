"""Ranks that are killed, or stopped for a while, at any moment; see tests/faults too."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import Died, Rank, Ranks, Returned

import torchcomms
from torchcomms import ReduceOp

MakeRanks = Callable[[int], Ranks]
SIZE = 3


def all_reduce(comm: Any, dice: random.Random, count: int) -> None:
    add = dice.randrange(100)
    data = torch.arange(count) + comm.get_rank() * add
    if dice.random() < 0.5:
        comm.all_reduce(data, ReduceOp.SUM, async_op=False)
    else:
        comm.all_reduce(data, ReduceOp.SUM, async_op=True).wait()
    size = comm.get_size()
    assert torch.equal(data, torch.arange(count) * size + add * (size * (size - 1) // 2))


def all_gather(comm: Any, dice: random.Random, count: int) -> None:
    add = dice.randrange(100)
    parts = [torch.full((count,), -1) for _ in range(comm.get_size())]
    comm.all_gather(parts, torch.full((count,), comm.get_rank() + add), async_op=False)
    for rank, part in enumerate(parts):
        assert torch.equal(part, torch.full((count,), rank + add))


def broadcast(comm: Any, dice: random.Random, count: int) -> None:
    root, value = dice.randrange(comm.get_size()), dice.randrange(1000)
    data = torch.full((count,), value if comm.get_rank() == root else -1)
    comm.broadcast(data, root, async_op=False)
    assert torch.equal(data, torch.full((count,), value))


def messages(comm: Any, dice: random.Random, count: int) -> None:
    size, rank, add = comm.get_size(), comm.get_rank(), dice.randrange(100)
    got = torch.full((count,), -1)
    sent = comm.send(torch.full((count,), rank + add), (rank + 1) % size, async_op=True)
    comm.recv(got, (rank - 1) % size, async_op=False)
    sent.wait()
    assert torch.equal(got, torch.full((count,), (rank - 1) % size + add))


CALLS = (all_reduce, all_gather, broadcast, messages)


def call(comm: Any, dice: random.Random) -> None:
    """A call as the dice have it, which fall alike on all ranks; its results are checked."""
    dice.choice(CALLS)(comm, dice, dice.choice((1, 1000, 100_000)))


def call_for_ever(comm: Any, dice: random.Random) -> None:
    while True:
        call(comm, dice)


def belongings() -> tuple[int, int]:
    """Descriptors and threads of this process."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def hints(rank: Rank, seed: int) -> dict[str, str]:
    """Every other time each rank is as if on a host of its own."""
    return {"ctran::host": f"host{rank.rank}" if seed % 2 == 0 else ""}


def meets_death(rank: Rank, victim: int, seed: int) -> list[int]:
    """Calls until a rank is lost, then in a new communicator of the others; who was lost."""
    comm = rank.new_comm("ctran", f"first-{seed}", hints=hints(rank, seed))
    dice = random.Random(seed)
    rank.say("calling")
    with pytest.raises(torchcomms.PeerLostError) as lost:
        call_for_ever(comm, dice)
    del comm
    left = Rank(rank.rank - (rank.rank > victim), rank.size - 1, rank._process)
    second = left.new_comm("ctran", f"second-{seed}", hints=hints(rank, seed))
    dice = random.Random(seed)  # one of them may have been a call ahead of the others
    for _ in range(3):
        call(second, dice)
    second.finalize()
    return lost.value.ranks


def goes_on(rank: Rank, faults: int, seed: int) -> None:
    """Calls while a rank is stopped and goes on, again and again; nothing fails or leaks."""
    before = (0, 0)
    for fault in range(faults):
        comm = rank.new_comm("ctran", f"{seed}-{fault}", hints=hints(rank, fault))
        dice = random.Random(seed + fault)
        rank.say("calling")
        for _ in range(20):
            call(comm, dice)
        comm.finalize()
        del comm
        if fault == 2:
            before = belongings()  # the engine's threads are there
    if faults > 3:
        deadline = time.monotonic() + 20
        while belongings() > before and time.monotonic() < deadline:
            os.sched_yield()
        assert belongings() <= before


def moment(dice: random.Random) -> None:
    """A random one: this decides where the fault falls, and nothing waits for it."""
    time.sleep(dice.random() * 0.005)


def kill(fresh_ranks: MakeRanks, seed: int) -> None:
    dice = random.Random(seed)
    victim = dice.randrange(SIZE)
    ranks = fresh_ranks(SIZE)
    job = ranks.start(meets_death, victim, seed)
    for rank in range(SIZE):
        assert job.hear(rank) == "calling"
    moment(dice)
    ranks.processes[victim].signal(signal.SIGKILL)
    for rank, outcome in enumerate(job.outcomes()):
        wanted = Died(-signal.SIGKILL) if rank == victim else Returned([victim])
        assert outcome == wanted, f"seed {seed}, rank {rank}: {outcome}"
    ranks.pool.end()


def pause(fresh_ranks: MakeRanks, seed: int, faults: int) -> None:
    dice = random.Random(seed)
    ranks = fresh_ranks(SIZE)
    job = ranks.start(goes_on, faults, seed)
    for _ in range(faults):
        for rank in range(SIZE):
            assert job.hear(rank) == "calling"
        victim = ranks.processes[dice.randrange(SIZE)]
        moment(dice)
        victim.signal(signal.SIGSTOP)
        moment(dice)
        victim.signal(signal.SIGCONT)
    job.results()


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_rank_is_named_and_the_others_go_on(fresh_ranks: MakeRanks, seed: int) -> None:
    kill(fresh_ranks, seed)


def test_stopped_rank_is_waited_for(fresh_ranks: MakeRanks) -> None:
    pause(fresh_ranks, 1, 5)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_two_hundred_faults(fresh_ranks: MakeRanks) -> None:
    for seed in range(100, 200):
        kill(fresh_ranks, seed)
    pause(fresh_ranks, 200, 100)
