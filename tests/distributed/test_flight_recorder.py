"""What flight recorders of several ranks write, and what PyTorch's analyzer makes of it."""

from __future__ import annotations

import importlib.util
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import Died, Rank, Ranks
from harness.failing import until

import torchcomms
from torchcomms import ReduceOp
from torchcomms.cli import main
from torchcomms.hooks import FlightRecorderHook

MakeRanks = Callable[[int], Ranks]
BACKEND = "ctran"
HAS_TABULATE = importlib.util.find_spec("tabulate") is not None


def _analyzer_knows_us() -> bool:
    try:
        from torch.distributed.flight_recorder.components.types import COLLECTIVES
    except ImportError:
        return False
    return {"all_gather_v", "all_to_all_single", "split"} <= COLLECTIVES


analyzed = pytest.mark.skipif(
    not _analyzer_knows_us(), reason="the analyzer of this torch does not know our operations"
)


def analyze(folder: Path, *arguments: str) -> tuple[str, Any]:
    """What fr_trace says, and its tables."""
    tables = folder.parent / "tables"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder)),
            *("-o", str(tables), *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    _types, database = pickle.loads(tables.read_bytes())
    return done.stdout + done.stderr, database


def dump_into(folder: str, rank: Rank) -> None:
    os.environ["TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME"] = "1"
    os.environ["TORCHCOMM_FR_DUMP_TEMP_FILE"] = os.path.join(folder, f"trace_rank_{rank.rank}")


def records(rank: Rank, folder: str) -> None:
    dump_into(folder, rank)
    comm = rank.new_comm(BACKEND, "recorded")
    recorder = FlightRecorderHook(isolated=True)
    recorder.register_with_comm(comm)
    me, size = comm.get_rank(), comm.get_size()
    t, parts, whole = torch.zeros(4), [torch.zeros(4) for _ in range(size)], torch.zeros(4 * size)
    for async_op in (False, True):
        works = [
            comm.all_reduce(t, ReduceOp.SUM, async_op),
            comm.broadcast(t, 1, async_op),
            comm.reduce(t, 0, ReduceOp.SUM, async_op),
            comm.all_gather(parts, t, async_op),
            comm.all_gather_v(parts, t, async_op),
            comm.all_gather_single(whole, t, async_op),
            comm.reduce_scatter(t, parts, ReduceOp.SUM, async_op),
            comm.reduce_scatter_v(t, parts, ReduceOp.SUM, async_op),
            comm.reduce_scatter_single(t, whole, ReduceOp.SUM, async_op),
            comm.all_to_all_single(whole, torch.zeros(4 * size), async_op),
            comm.all_to_all(parts, [torch.zeros(4) for _ in range(size)], async_op),
            comm.barrier(async_op),
            comm.scatter(t, parts if me == 0 else [], 0, async_op),
            comm.gather(parts if me == 1 else [], t, 1, async_op),
            comm.gather_single(whole, t, 1, async_op),
        ]
        for work in works:
            work.wait()
    pair = comm.split([1, 0] if me < 2 else [], "pair")
    if pair is not None:  # numbers of its own
        pair.all_reduce(t, ReduceOp.SUM, async_op=False)
        # As many as collectives, and in reverse: numbers that could be taken for one another.
        if pair.get_rank() == 0:
            pair.send(t, 1, async_op=False)
        else:
            pair.recv(t, 0, async_op=False)
        if HAS_TABULATE:  # without it fr_trace cannot show a batch
            batch = pair.batch_op_create()
            batch.send(t, 1 - pair.get_rank())
            batch.recv(torch.zeros(4), 1 - pair.get_rank())
            batch.issue(async_op=False)
        # Puts that nobody matches; one rank makes more of them.
        window = pair.new_window(torch.zeros(4))
        for _ in range(1 + me):
            window.put(t, 1 - pair.get_rank(), 0, async_op=False)
        window.signal(1 - pair.get_rank(), async_op=False)
        window.wait_signal(1 - pair.get_rank(), async_op=False)
        window.tensor_deregister()
        pair.all_reduce(t, ReduceOp.SUM, async_op=False)
    comm.all_reduce(t, ReduceOp.SUM, async_op=False)
    recorder.dump_file(rank.rank)
    recorder.unregister()


@analyzed
def test_the_analyzer_matches_all_operations(ranks: MakeRanks, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    ranks(3).run(records, str(folder))
    said, database = analyze(folder)
    collectives = database.collectives
    assert all(one.pass_check for one in collectives), said
    assert all(one.collective_state == "completed" for one in collectives)
    names = [one.collective_name for one in collectives if one.group_id == "recorded"]
    assert len(names) == 2 * 15 + 2  # and split, and the last all_reduce
    of_pair = [one.collective_name for one in collectives if one.group_id == "pair"]
    # "pair" has the ranks in reverse; the analyzer numbers members in rising order.
    assert of_pair[0] == of_pair[-1] == "ctran:all_reduce"
    assert of_pair[1] in ("ctran:recv 0<-1", "ctran:send 1->0")
    assert len(of_pair) == 4 + HAS_TABULATE  # with new_window
    of_windows = [one.collective_name for one in collectives if one.group_id == "pair/windows"]
    assert sorted(name.partition("coalesced ")[2] for name in of_windows) == [
        *("put 0->1", "put 1->0", "put 1->0"),
        *("signal 0->1", "signal 1->0", "wait_signal 0<-1", "wait_signal 1<-0"),
    ]
    assert {group.id.partition("-")[0][:4] for group in database.groups} >= {"pair"}
    assert "mismatch" not in said.lower()
    assert "Not all ranks" not in said


def hangs(rank: Rank, folder: str) -> None:
    dump_into(folder, rank)
    comm = rank.new_comm(BACKEND, "hanging")
    recorder = FlightRecorderHook(isolated=True)
    recorder.register_with_comm(comm)
    comm.barrier(async_op=False)
    if rank.rank == 1:  # never calls
        rank.listen()
        recorder.dump_file(1)
    else:
        with pytest.raises(torchcomms.CommTimeoutError):
            comm.all_reduce(
                torch.zeros(3), ReduceOp.SUM, async_op=False, timeout=timedelta(seconds=1)
            )


@analyzed
def test_the_analyzer_names_who_is_missing(fresh_ranks: MakeRanks, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    job = fresh_ranks(3).start(hangs, str(folder))
    until(lambda: {0, 2} <= job.ended(), "those who called have their error")
    assert sorted(os.listdir(folder)) == ["trace_rank_0", "trace_rank_2"]
    job.say(1)
    job.results()
    assert sorted(os.listdir(folder)) == ["trace_rank_0", "trace_rank_1", "trace_rank_2"]
    said, _database = analyze(folder)
    assert "ctran:all_reduce" in said
    assert "missing ranks: {1}" in said, said


def works_unprepared(rank: Rank, absent: int) -> None:
    comm = rank.new_comm(BACKEND, "unprepared")
    me, size = comm.get_rank(), comm.get_size()
    t, whole = torch.zeros(4), torch.zeros(4 * size)
    parts = [torch.zeros(4) for _ in range(size)]
    comm.barrier(async_op=False)
    comm.all_reduce(t, ReduceOp.SUM, async_op=False)
    comm.broadcast(t, 1, async_op=False)
    comm.reduce(t, 0, ReduceOp.SUM, async_op=False)
    comm.all_gather_single(whole, t, async_op=False)
    comm.all_gather_v(parts, t, async_op=False)
    comm.reduce_scatter_single(t, whole, ReduceOp.SUM, async_op=False)
    comm.all_to_all_single(whole, whole.clone(), async_op=False)
    comm.gather(parts if me == 0 else [], t, 0, async_op=False)
    comm.scatter(t, parts if me == 0 else [], 0, async_op=False)
    pair = comm.split([2, 1] if me > 0 else [], "unprepared pair")
    if pair is not None:
        pair.all_reduce(t, ReduceOp.SUM, async_op=False)
        if pair.get_rank() == 0:
            pair.send(t, 1, async_op=False)
        else:
            pair.recv(t, 0, async_op=False)
        pair.finalize()
    rank.say("ready")
    rank.listen()
    if me != absent:
        comm.all_reduce(t, ReduceOp.SUM, async_op=True)
    rank.say("called")
    rank.listen()
    comm.finalize()


@analyzed
@pytest.mark.parametrize("absent", [-1, 1])
def test_the_analyzer_reads_a_job_that_has_prepared_nothing(
    fresh_ranks: MakeRanks, tmp_path: Path, absent: int
) -> None:
    job = fresh_ranks(3).start(works_unprepared, absent)
    folder = tmp_path / "traces"
    write = ["trace", "--format", "flight_recorder", "-o", str(folder)]
    write += [str(job.ranks.processes[0].pid)]
    for word in ("ready", "called"):
        for rank in range(3):
            assert job.hear(rank) == word
        if word == "ready":
            for rank in range(3):
                job.say(rank)
    assert main(write) == 0
    assert sorted(os.listdir(folder)) == ["rank_0", "rank_1", "rank_2"]
    said, database = analyze(folder)
    done = [one for one in database.collectives if one.collective_state == "completed"]
    assert all(one.pass_check for one in done), said
    names = [one.collective_name for one in done if one.group_id == "unprepared"]
    assert {name.removeprefix("ctran:") for name in names} >= {
        *("barrier", "all_reduce", "broadcast", "reduce", "all_gather_single", "all_gather_v"),
        *("reduce_scatter_single", "all_to_all_single", "gather", "scatter"),
    }
    of_pair = [one.collective_name for one in done if one.group_id.endswith("pair")]
    assert "ctran:all_reduce" in of_pair
    assert len(of_pair) == 2, "and a message"
    assert "mismatch" not in said.lower()
    if absent >= 0:
        assert f"missing ranks: {{{absent}}}" in said, said
    else:
        assert "Not all ranks" not in said, said


def loses_a_peer(rank: Rank, folder: str) -> None:
    os.environ["TORCHCOMM_ERROR_GRACE_SECONDS"] = "0"
    dump_into(folder, rank)
    comm = rank.new_comm(BACKEND, "policy", abort_process_on_timeout_or_error=True)
    FlightRecorderHook(isolated=True).register_with_comm(comm)
    if rank.rank == 0:
        comm.all_reduce(torch.ones(4), ReduceOp.SUM, async_op=True)
    rank.say("ready")
    rank.listen()


def test_a_process_that_ends_itself_dumps_before(fresh_ranks: MakeRanks, tmp_path: Path) -> None:
    ranks = fresh_ranks(2)
    job = ranks.start(loses_a_peer, str(tmp_path))
    assert [job.hear(r) for r in range(2)] == ["ready", "ready"]
    ranks.processes[1].signal(signal.SIGKILL)
    assert job.outcomes()[0] == Died(-signal.SIGABRT)
    (entry,) = pickle.loads((tmp_path / "trace_rank_0").read_bytes())["entries"]
    assert entry["profiling_name"] == "ctran:all_reduce"
    assert entry["state"] != "completed"
