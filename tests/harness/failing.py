"""What tests of failures need: calls that block, and to know when they do, without guessing."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.ranks import GUARD_SECONDS, Job, Outcome
from torchcomms import CommError, ReduceOp


def error_of(call: Callable[[], Any], kind: type[Exception] = CommError) -> Any:
    """What the call raises, which is of that kind."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def until(condition: Callable[[], bool], what: str) -> None:
    """Returns as soon as the condition holds."""
    deadline = time.monotonic() + GUARD_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {GUARD_SECONDS} s: {what}")
        time.sleep(0.005)


def until_blocked(job: Job, *ranks: int) -> None:
    """Until the main threads of these ranks have said "calling" and then gone to sleep."""
    for rank in ranks:
        assert job.hear(rank) == "calling"
    processes = [job.ranks.processes[rank] for rank in ranks]
    until(lambda: all(p.is_asleep() for p in processes), f"ranks {ranks} block")


def until_dead(job: Job, rank: int) -> None:
    process = job.ranks.processes[rank]
    until(lambda: process.exit_code is not None, f"rank {rank} is dead")


def outcomes_without(job: Job, victim: int) -> list[Outcome]:
    """Kills a rank once all have said "ready", lets the others go on, and tells how all ended."""
    ranks = range(len(job.ranks.processes))
    assert [job.hear(r) for r in ranks] == ["ready"] * len(ranks)
    job.ranks.processes[victim].signal(signal.SIGKILL)
    until_dead(job, victim)
    for other in set(ranks) - {victim}:
        job.say(other)
    return job.outcomes()


@contextmanager
def asked_by_other_threads(comm: Any, *, aborts: bool) -> Iterator[None]:
    """Two threads ask meanwhile, again and again, whether it is aborted, and may abort it."""
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            comm.is_aborted()
            if aborts:
                comm.abort()

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def all_reduce(comm: Any, count: int = 4, **options: Any) -> Any:
    return comm.all_reduce(torch.ones(count), ReduceOp.SUM, async_op=False, **options)


def all_reduce_in_rounds(comm: Any) -> Any:
    return all_reduce(comm, 1_000_000)


def barrier(comm: Any) -> Any:
    return comm.barrier(async_op=False)


def recv_from_two(comm: Any) -> Any:
    return comm.recv(torch.ones(4), 2, async_op=False)


def wait_for_async(comm: Any) -> Any:
    return comm.all_reduce(torch.ones(4), ReduceOp.SUM, async_op=True).wait()
