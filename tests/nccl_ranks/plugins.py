"""The plug-ins for NCCL: what it does is recorded, and it takes what a table says."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from harness import Job, Rank

import torchcomms
from nccl_ranks import Make, case
from torchcomms import ReduceOp
from torchcomms.cli.records import job as recorded
from torchcomms.cli.records import timeline
from torchcomms.cli.records.verdicts import collectives, judge
from torchcomms.select import _nccl

SMALL, LARGE = 1024, 2 << 20  # floats
# The other way round than by itself.
TABLE = """\
all_reduce, 0, 65536, ring, simple, , 1, 2
all_reduce, 65537, , ring, ll, , 1, 2
"""
GUARD_SECONDS = 60


def _comm(rank: Rank, table: str) -> torchcomms.TorchComm:
    os.environ["TORCHCOMMS_NCCL_PROFILER"] = "1"
    if table:
        os.environ["TORCHCOMMS_NCCL_TUNING"] = table
    return rank.new_comm("nccl", "told")


def _recorded(job: Job) -> recorded.Communicator:
    (found,) = (c for c in recorded.live(job.ranks.processes[0].pid) if c.name == "nccl: told")
    return found


def _until(job: Job, holds: Callable[[recorded.Communicator], bool]) -> recorded.Communicator:
    """NCCL tells of the end of a kernel a moment after it."""
    deadline = time.monotonic() + GUARD_SECONDS
    while not holds(found := _recorded(job)):
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    return found


def _calls(found: recorded.Communicator, rank: int) -> list[dict[str, Any]]:
    return [call for _, call in sorted(collectives(found.ranks[rank]).items())]


def _has_ended(found: recorded.Communicator, calls: int) -> bool:
    return all(
        len(made := _calls(found, rank)) == calls and all(call["ended"] for call in made)
        for rank in range(2)
    )


def _reduces(rank: Rank, table: str) -> None:
    comm = _comm(rank, table)
    for count in (SMALL, LARGE):
        tensor = torch.full((count,), float(rank.rank + 1), device=rank.device("nccl"))
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        rank.synchronize("nccl")
        assert (tensor.cpu() == 3).all()
    comm.broadcast(torch.ones(3, device=rank.device("nccl")), 1, async_op=False)
    tensor = torch.ones(7, device=rank.device("nccl"))
    (comm.send if rank.rank == 0 else comm.recv)(tensor, 1 - rank.rank, async_op=False)
    rank.synchronize("nccl")
    rank.say("done")
    rank.listen()
    comm.finalize()


@case(world=2, breaks=True)
def what_nccl_does_is_recorded_and_it_goes_by_the_table(make: Make) -> None:
    with TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        table.write_text(TABLE)
        job = make(2).start(_reduces, str(table))
        for rank in range(2):
            assert job.hear(rank) == "done"
        found = _until(job, lambda found: len(found.ranks) == 2 and _has_ended(found, 3))
        assert found.size == 2
        for rank in range(2):
            small, large, broadcast = _calls(found, rank)
            assert small["call"] == f"all_reduce(float32, {SMALL} elements)"
            assert small["bytes"] == SMALL * 4
            assert small["algorithm"] == large["algorithm"] == "nccl/ring"
            assert small["why"].startswith("simple,"), small
            assert large["why"].startswith("ll,"), large
            assert broadcast["kind"] == "broadcast"
            for call in (small, large, broadcast):
                assert call["called"] <= call["started"] <= call["ended"]
            (message,) = (o for o in found.ranks[rank]["operations"] if o["message"])
            assert message["kind"] == ("send", "recv")[rank]
            assert message["root"] == 1 - rank
        assert judge(found) == []
        events = timeline.events([found])["traceEvents"]
        assert sum(event["name"] == "all_reduce" for event in events) == 4
        for rank in range(2):
            job.say(rank)
        job.results()


def _tunes(rank: Rank, folder: str) -> tuple[list[str], str]:
    """What NCCL can do, and the table that is measured; rank 0 writes another one."""
    _nccl.offer()
    comm = _comm(rank, "")
    can = list(_nccl.Ways(comm).choices("all_reduce", SMALL * 4))
    table = _nccl.tune(comm, 0.01)
    if rank.rank == 0:
        rows = [
            {
                "collective": "all_reduce",
                "bytes": SMALL * 4,
                "us": {"own": 9.0, "ring/simple": 5.0},
            },
            {"collective": "all_reduce", "bytes": LARGE * 4, "us": {"own": 9.0, "ring/ll": 5.0}},
        ]
        (Path(folder) / "table.csv").write_text(_nccl.table(rows, 1, rank.size))
    comm.barrier(async_op=False).wait_blocking()
    comm.finalize()
    return can, table


@case(world=2, breaks=True)
def ways_of_nccl_are_measured_and_written_down(make: Make) -> None:
    with TemporaryDirectory() as folder:
        (can, table), other = make(2).run(_tunes, folder)
        assert other == (can, table)
        assert can[0] == "own"
        assert "ring/simple" in can
        assert "nvls/ll" not in can  # which no NCCL has
        heading, *lines = table.splitlines()
        assert heading.startswith("# collective, least bytes")
        assert all(len(line.split(",")) == len(heading.split(",")) for line in lines)
        # NCCL does what the other one says.
        job = make(2).start(_reduces, str(Path(folder) / "table.csv"))
        for rank in range(2):
            assert job.hear(rank) == "done"
        found = _until(job, lambda found: len(found.ranks) == 2 and _has_ended(found, 3))
        for rank in range(2):
            small, large, _ = _calls(found, rank)
            assert small["algorithm"] == large["algorithm"] == "nccl/ring"
            assert small["why"].startswith("simple,"), small
            assert large["why"].startswith("ll,"), large
        for rank in range(2):
            job.say(rank)
        job.results()


def _lets_the_other_wait(rank: Rank) -> None:
    comm = _comm(rank, "")
    tensor = torch.ones(SMALL, device=rank.device("nccl"))
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    rank.synchronize("nccl")
    if rank.rank == 1:
        rank.say("waits")
        rank.listen()
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait()
    rank.synchronize("nccl")
    rank.say("done")
    rank.listen()
    comm.finalize()


@case(world=2, breaks=True)
def a_rank_that_has_not_called_is_named(make: Make) -> None:
    job = make(2).start(_lets_the_other_wait)
    assert job.hear(1) == "waits"

    def verdicts(found: recorded.Communicator) -> list[tuple[str, list[int], int]]:
        return [(v["verdict"], v["ranks"], v["number"]) for v in judge(found, 0.1)]

    _until(job, lambda found: verdicts(found) == [("missing_rank", [1], 2)])
    job.say(1)
    for rank in range(2):
        assert job.hear(rank) == "done"
    _until(job, lambda found: _has_ended(found, 2) and verdicts(found) == [])
    for rank in range(2):
        job.say(rank)
    job.results()
