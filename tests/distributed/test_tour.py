"""A tour: 8 ranks on 2 simulated hosts, with what goes wrong at night, each found by `analyze` in
the running job and in the files that it has saved.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import Job, Rank, Ranks
from harness.failing import all_reduce, until_dead

import torchcomms
from torchcomms import ReduceOp
from torchcomms.cli import main
from torchcomms.cli.records import job as recorded
from torchcomms.cli.records import sources
from torchcomms.cli.records.verdicts import judge

MakeRanks = Callable[[int], Ranks]
RANKS, HOSTS = 8, 2
ODD = 5  # the rank with which something is the matter
STEPS = 20


def step(comm: torchcomms.TorchComm, count: int = 1000) -> None:
    comm.all_reduce(torch.ones(count), ReduceOp.SUM, async_op=False)


def works(rank: Rank, count: int = 1000) -> None:
    comm = rank.comm("ctran", HOSTS)
    for _ in range(STEPS):
        step(comm, count)
    rank.say("ready")
    rank.listen()
    comm.finalize()


def straggles(rank: Rank) -> None:
    comm = rank.comm("ctran", HOSTS)
    for _ in range(STEPS):
        if rank.rank == ODD:
            time.sleep(0.02)  # what it computes
        step(comm)
    rank.say("ready")
    rank.listen()
    comm.finalize()


def passes_a_wrong_size(rank: Rank) -> None:
    comm = rank.comm("ctran", HOSTS)

    def calls() -> None:
        for _ in range(STEPS):
            step(comm)
        step(comm, 1001 if rank.rank == ODD else 1000)

    # Another rank may hear of it before it has seen the end of the last right one.
    with pytest.raises(torchcomms.MismatchError):
        calls()
    rank.say("ready")
    rank.listen()


def loses_one(rank: Rank) -> None:
    comm = rank.comm("ctran", HOSTS)
    for _ in range(STEPS):
        step(comm)
    rank.say("ready")
    rank.listen()
    with pytest.raises(torchcomms.PeerLostError):
        all_reduce(comm)
    rank.say("ready")
    rank.listen()


def has_a_slow_link(rank: Rank) -> None:
    if rank.rank == ODD:
        os.environ["CTRAN_TCP_RATE"] = "20M"
    comm = rank.comm("ctran", HOSTS)
    for _ in range(STEPS):
        step(comm, 1 << 20)
    rank.say("ready")
    rank.listen()
    comm.finalize()


def found(pid: int, folder: Path) -> list[dict[str, Any]]:
    """The verdicts about the running job, which are those about the files that it saves."""
    (communicator,) = recorded.live(pid)
    live = judge(communicator, 0.2)
    file = folder / "job.json"
    main(["analyze", str(pid), "--save", str(file)])
    (kept,) = sources.find([str(file)])
    assert [v["verdict"] for v in judge(kept, 0.2)] == [v["verdict"] for v in live]
    assert [v["ranks"] for v in judge(kept, 0.2)] == [v["ranks"] for v in live]
    return live


def start(fresh_ranks: MakeRanks, program: Callable[..., None], *arguments: Any) -> tuple[Job, int]:
    job = fresh_ranks(RANKS).start(program, *arguments)
    for rank in range(RANKS):
        assert job.hear(rank) == "ready"
    pid = job.ranks.processes[0].pid
    assert pid is not None
    return job, pid


def end(job: Job) -> None:
    for rank in range(RANKS):
        job.say(rank)
    job.results()


@pytest.mark.parametrize("count", [1000, 1 << 20], ids=["small", "large"])
def test_nothing_is_said_of_a_healthy_job(
    fresh_ranks: MakeRanks, tmp_path: Path, count: int
) -> None:
    job, pid = start(fresh_ranks, works, count)
    # More ranks than cores: one of them may well be the last in most calls.
    kinds = {verdict["verdict"] for verdict in found(pid, tmp_path)}
    assert kinds <= {"slow_rank"}
    end(job)


def test_a_straggler(fresh_ranks: MakeRanks, tmp_path: Path) -> None:
    job, pid = start(fresh_ranks, straggles)
    verdict = found(pid, tmp_path)[0]
    assert verdict["verdict"] == "slow_rank"
    assert verdict["ranks"] == [ODD]
    assert verdict["confidence"] > 0.7
    end(job)


def test_a_wrong_size(fresh_ranks: MakeRanks, tmp_path: Path) -> None:
    job, pid = start(fresh_ranks, passes_a_wrong_size)
    verdict = found(pid, tmp_path)[0]
    assert verdict["verdict"] == "different_sizes"
    assert verdict["ranks"] == [ODD]
    assert verdict["number"] == STEPS + 1
    end(job)


def test_a_killed_rank(fresh_ranks: MakeRanks, tmp_path: Path) -> None:
    job, pid = start(fresh_ranks, loses_one)
    job.ranks.processes[ODD].signal(signal.SIGKILL)
    until_dead(job, ODD)
    others = [rank for rank in range(RANKS) if rank != ODD]
    for rank in others:
        job.say(rank)
    for rank in others:
        assert job.hear(rank) == "ready"
    verdict = found(pid, tmp_path)[0]
    assert verdict["verdict"] == "dead_process"
    assert verdict["ranks"] == [ODD]
    for rank in others:
        job.say(rank)
    job.outcomes()


def test_a_slow_link(fresh_ranks: MakeRanks, tmp_path: Path) -> None:
    job, pid = start(fresh_ranks, has_a_slow_link)
    verdicts = {v["verdict"]: v for v in found(pid, tmp_path)}
    verdict = verdicts["slow_link"]
    assert ODD in verdict["ranks"]
    assert verdict["gbs"] == pytest.approx(0.021, rel=0.5)
    assert f"from rank {ODD} on " in verdict["text"]
    end(job)
