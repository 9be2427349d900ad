"""`torchcomms env set` beside jobs that have prepared nothing for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest
from harness import Job, Rank, Ranks
from harness.failing import all_reduce

import torchcomms
from torchcomms.cli import main
from torchcomms.cli.records import job as recorded

MakeRanks = Callable[[int], Ranks]
HOSTS = pytest.mark.parametrize("hosts", [1, 2])


def obeys(rank: Rank, hosts: int) -> str:
    """Does what it is told: calls, waits for what does not come, or ends."""
    comm = rank.comm("ctran", hosts)
    error = ""
    all_reduce(comm)
    rank.say("ready")
    while (order := rank.listen()) != "end":
        if order == "call" or rank.rank == 0:
            try:
                all_reduce(comm)
            except torchcomms.CommTimeoutError as failure:
                error = str(failure)
        rank.say("done")
    return error


def start(fresh_ranks: MakeRanks, ranks: int, hosts: int) -> tuple[Job, str]:
    job = fresh_ranks(ranks).start(obeys, hosts)
    for rank in range(ranks):
        assert job.hear(rank) == "ready"
    return job, str(job.ranks.processes[0].pid)


def tell_all(job: Job, ranks: int, what: str) -> None:
    for rank in range(ranks):
        job.say(rank, what)
    for rank in range(ranks):
        assert job.hear(rank) == "done"


def obeys_with_others(rank: Rank) -> None:
    comm = rank.comm("ctran")
    alone = comm.split([rank.rank], f"alone{rank.rank}")
    assert alone is not None
    all_reduce(alone)
    rank.say("ready")
    assert rank.listen() == "end"
    alone.finalize()


def test_a_communicator_of_one_rank_is_not_waited_for(
    fresh_ranks: MakeRanks, capsys: pytest.CaptureFixture[str]
) -> None:
    job = fresh_ranks(2).start(obeys_with_others)
    for rank in range(2):
        assert job.hear(rank) == "ready"
    pid = str(job.ranks.processes[0].pid)
    assert main(["env", "set", "TORCHCOMM_LOG", "warn", "--job", pid]) == 0
    told = capsys.readouterr().out.splitlines()
    assert sum("TORCHCOMM_LOG=warn" in line for line in told) == 2
    assert sorted(line for line in told if line.startswith("alone")) == [
        f"alone{r}: takes no settings, as it has one rank" for r in range(2)
    ]
    assert main(["env", "set", "TORCHCOMM_LOG", "loud", "--job", pid, "--json"]) == 1
    answers = json.loads(capsys.readouterr().out)
    assert sorted(a["rank"] for a in answers if a["rank"] is not None) == [0, 1]
    assert [a["is_fine"] for a in answers if a["rank"] is not None] == [False, False]
    assert all(a["is_fine"] for a in answers if a["rank"] is None)
    for rank in range(2):
        job.say(rank, "end")
    job.results()


@HOSTS
def test_recording_goes_off_and_on(
    fresh_ranks: MakeRanks, hosts: int, capsys: pytest.CaptureFixture[str]
) -> None:
    job, pid = start(fresh_ranks, 4, hosts)
    called = dict.fromkeys(range(4), 1)
    for value, recorded_too in (("0", False), ("1", True)):
        assert main(["env", "set", "CTRAN_TRACE", value, "--job", pid]) == 0
        told = capsys.readouterr().out.splitlines()
        assert [line.partition(", ")[2] for line in told] == [
            f"rank {rank}: CTRAN_TRACE={value}" for rank in range(4)
        ]
        tell_all(job, 4, "call")
        (communicator,) = recorded.live(int(pid))
        for rank, about in communicator.ranks.items():
            called[rank] += 1
            numbers = [o["number"] for o in about["operations"] if not o["message"]]
            assert (called[rank] in numbers) is recorded_too, "numbers go on all the same"
        main(["analyze", pid])
        assert ("records nothing" in capsys.readouterr().out) is not recorded_too
    for rank in range(4):
        job.say(rank, "end")
    job.results()


@HOSTS
def test_time_limits_of_operations_that_start_from_then_on(
    fresh_ranks: MakeRanks, hosts: int
) -> None:
    job, pid = start(fresh_ranks, 2, hosts)
    assert main(["env", "set", "TORCHCOMM_TIMEOUT_SECONDS", "0.5", "--job", pid]) == 0
    began = time.monotonic()
    tell_all(job, 2, "rank 0 calls alone")
    assert time.monotonic() - began < 60, "the limit was ten minutes"
    for rank in range(2):
        job.say(rank, "end")
    assert "timed out after 0.5 s" in job.results()[0]


def test_what_is_refused_is_said_and_changes_nothing(
    fresh_ranks: MakeRanks, capsys: pytest.CaptureFixture[str]
) -> None:
    job, pid = start(fresh_ranks, 2, 1)
    for name, value, why in (
        ("CTRAN_TRACE", "maybe", "rank 1: CTRAN_TRACE='maybe' is not a truth value"),
        ("CTRAN_SPIN_MICROS", "1", "rank 1: CTRAN_SPIN_MICROS is read when something is created"),
        ("CTRAN_NOTHING", "1", "rank 1: CTRAN_NOTHING is no variable\n"),
        ("CTRAN_TRAC", "1", "rank 1: CTRAN_TRAC is no variable; is CTRAN_TRACE meant?"),
    ):
        assert main(["env", "set", name, value, "--job", pid]) == 1
        assert why in capsys.readouterr().out
    assert main(["env", "set", "CTRAN_TRACE", "1" * 1000, "--job", pid]) == 2
    assert "more than 255 bytes" in capsys.readouterr().err
    with subprocess.Popen(["sleep", "300"]) as alone:
        assert main(["env", "set", "CTRAN_TRACE", "1", "--job", str(alone.pid)]) == 2
        alone.kill()
    tell_all(job, 2, "call")
    for rank in range(2):
        job.say(rank, "end")
    assert job.results() == ["", ""]


def test_a_rank_that_is_stopped_has_not_answered(
    fresh_ranks: MakeRanks, capsys: pytest.CaptureFixture[str]
) -> None:
    job, pid = start(fresh_ranks, 2, 1)
    stopped = job.ranks.processes[1].pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    change = ["env", "set", "CTRAN_TRACE", "1", "--job", pid, "--seconds", "0.2"]
    assert main(change) == 1
    assert "rank 1: has not answered" in capsys.readouterr().out
    os.kill(stopped, signal.SIGCONT)
    assert main([*change[:-1], "20"]) == 0
    for rank in range(2):
        job.say(rank, "end")
    job.results()


def finalizes_one(rank: Rank, both: bool) -> None:
    comm = rank.comm("ctran")
    part = comm.split([0, 1], "part")
    assert part is not None
    all_reduce(part)
    for one in (part, comm) if both else (part,):
        one.finalize()
    rank.say("ready")
    rank.listen()


@pytest.mark.parametrize("both", [False, True])
def test_what_is_finalized_is_not_asked(
    fresh_ranks: MakeRanks, capsys: pytest.CaptureFixture[str], both: bool
) -> None:
    job = fresh_ranks(2).start(finalizes_one, both)
    assert [job.hear(rank) for rank in range(2)] == ["ready", "ready"]
    pid = str(job.ranks.processes[0].pid)
    assert main(["env", "set", "TORCHCOMM_LOG", "warn", "--job", pid]) == (2 if both else 0)
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == (0 if both else 2)
    assert "part" not in told.out
    assert ("until they are finalized" in told.err) is both
    for rank in range(2):
        job.say(rank)
    job.results()


def has_another(rank: Rank) -> None:
    comms = [rank.comm("ctran"), rank.comm("gloo")]
    for comm in comms:
        all_reduce(comm)
    rank.say(comms[1].get_name())
    rank.listen()


def test_who_takes_no_settings_is_said(
    fresh_ranks: MakeRanks, capsys: pytest.CaptureFixture[str]
) -> None:
    job = fresh_ranks(2).start(has_another)
    names = [job.hear(rank) for rank in range(2)]
    pid = str(job.ranks.processes[0].pid)
    assert main(["env", "set", "TORCHCOMM_TIMEOUT_SECONDS", "60", "--job", pid]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[2:] == [f"{names[0]}: takes no settings, as it is not ctran's"]
    for rank in range(2):
        job.say(rank)
    job.results()
