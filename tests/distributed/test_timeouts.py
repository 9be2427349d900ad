"""Ranks that do not come: the others are told who is missing, and what each did last."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
from harness import Rank, Ranks
from harness.failing import (
    all_reduce,
    until,
)

import torchcomms
from torchcomms import ReduceOp

MakeRanks = Callable[[int], Ranks]
BACKEND = "ctran"


def never_calls(rank: Rank, missing: list[int], of_call: bool) -> tuple[list[int], str] | None:
    short = timedelta(seconds=1)
    comm = rank.comm(BACKEND)
    comm.broadcast(torch.ones(7, dtype=torch.int32), 1, async_op=False)
    if rank.rank in missing:
        rank.listen()
        return None
    options = {"timeout": short} if of_call else {}
    if not of_call:
        comm.set_timeout(short)
    with pytest.raises(torchcomms.CommTimeoutError) as error:
        all_reduce(comm, 100, **options)
    return error.value.ranks, str(error.value)


@pytest.mark.parametrize("of_call", [False, True], ids=["of the communicator", "of the call"])
@pytest.mark.parametrize("missing", [[2], [0, 3]])
def test_timeout_names_who_is_missing_and_what_each_did_last(
    fresh_ranks: MakeRanks, missing: list[int], of_call: bool
) -> None:
    job = fresh_ranks(4).start(never_calls, missing, of_call)
    came = [r for r in range(4) if r not in missing]
    until(lambda: set(came) <= job.ended(), "those who called have their error")
    for r in missing:
        job.say(r)
    results = job.results()
    for r in came:
        ranks, message = results[r]
        assert ranks == missing
        names = ("rank " if len(missing) == 1 else "ranks ") + ", ".join(map(str, missing))
        assert f"{names} ha" in message
        assert "not called it" in message
        assert "timed out after 1 s" in message
        for other in range(4):
            did = "broadcast(int32, 7 elements" if other in missing else "all_reduce(sum, float32"
            assert re.search(rf"rank {other}: last collective {re.escape(did)}", message), message


def receives_nothing(rank: Rank) -> list[int] | None:
    comm = rank.comm(BACKEND)
    if rank.rank == 1:
        rank.listen()
        return None
    short = timedelta(milliseconds=200)
    with pytest.raises(torchcomms.CommTimeoutError, match="rank 1 has not sent it") as error:
        comm.recv(torch.ones(3), 1, async_op=False, timeout=short)
    return error.value.ranks


def test_timeout_of_a_receive_names_the_sender(fresh_ranks: MakeRanks) -> None:
    job = fresh_ranks(2).start(receives_nothing)
    until(lambda: 0 in job.ended(), "rank 0 has its error")
    job.say(1)
    assert job.results() == [[1], None]


def times_out_asynchronously(rank: Rank) -> str | None:
    comm = rank.comm(BACKEND)
    if rank.rank == 1:
        rank.listen()
        return None
    work = comm.all_reduce(
        torch.ones(3), ReduceOp.SUM, async_op=True, timeout=timedelta(milliseconds=200)
    )
    with pytest.raises(torchcomms.CommTimeoutError):
        work.wait()
    assert work.is_completed()
    return str(work.status)


def test_timeout_of_a_work(fresh_ranks: MakeRanks) -> None:
    job = fresh_ranks(2).start(times_out_asynchronously)
    until(lambda: 0 in job.ended(), "rank 0 has its error")
    job.say(1)
    assert job.results()[0].endswith("TIMEDOUT")
