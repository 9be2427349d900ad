"""`torchcomms analyze`, `top` and `trace` beside jobs that have prepared nothing for them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from harness import Job, Rank, Ranks, analysis, devices
from harness.failing import all_reduce, until, until_dead
from harness.programs import served, stranger

import torchcomms
from torchcomms import ReduceOp, SignalCmpOp
from torchcomms.cli import main
from torchcomms.cli.records import job as recorded
from torchcomms.cli.records import processes, top
from torchcomms.cli.records.arrows import arrows
from torchcomms.cli.records.calls import current as running
from torchcomms.cli.records.calls import messages
from torchcomms.cli.records.command import report
from torchcomms.cli.records.verdicts import judge

MakeRanks = Callable[[int], Ranks]
HOSTS = pytest.mark.parametrize("hosts", [1, 2])


def verdicts_of(job: Job, rank: int = 0, after: float = 0.2) -> list[dict[str, Any]]:
    """Of the job's only communicator, as seen through one of its processes."""
    communicator = only_one(job, rank)
    verdicts = judge(communicator, after)
    analysis.checked(json.dumps(report([(communicator, verdicts)])))
    return verdicts


def only_one(job: Job, rank: int = 0) -> recorded.Communicator:
    found = recorded.live(job.ranks.processes[rank].pid)
    # Beside it are the engine's communicator through which ranks with GPUs meet, and that by which
    # the stand-in for NCCL moves data.
    (communicator,) = (
        c for c in found if not c.name.endswith("/control") and not c.name.startswith("stand-in-")
    )
    return communicator


def wait_for(job: Job, kind: str, rank: int = 0) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def has_come() -> bool:
        with suppress(recorded.NotFoundError):  # it is about to make its communicator
            found[:] = [v for v in verdicts_of(job, rank) if v["verdict"] == kind]
        return bool(found)

    until(has_come, kind)
    return found[0]


def calls_except_one(rank: Rank, hosts: int, absent: int) -> None:
    comm = rank.comm("ctran", hosts)
    for _ in range(3):
        all_reduce(comm, 1000)
    if rank.rank == absent:
        rank.say("absent")
        rank.listen()
    all_reduce(comm, 1000)
    rank.say("done")
    rank.listen()
    comm.finalize()


@HOSTS
def test_a_rank_that_has_not_called_is_named(fresh_ranks: MakeRanks, hosts: int) -> None:
    job = fresh_ranks(4).start(calls_except_one, hosts, 2)
    assert job.hear(2) == "absent"
    verdict = wait_for(job, "missing_rank")
    assert verdict["ranks"] == [2]
    assert verdict["waiting"] == [0, 1, 3]
    assert verdict["number"] == 4
    assert "rank 2 has not called all_reduce #4 (4000 B)" in verdict["text"]
    job.say(2)
    for rank in range(4):
        assert job.hear(rank) == "done"
    assert verdicts_of(job) == [], "all is well again"
    for rank in range(4):
        job.say(rank)
    job.results()


def calls_on_a_backend_except_one(rank: Rank, backend: str, absent: int) -> tuple[str, str]:
    """Returns what serves the calls, and why, where comm.explain knows it."""
    comm = rank.comm(backend)

    def call(asynchronously: bool) -> None:
        data = torch.ones(1000, device=rank.device(backend))
        comm.all_reduce(data, ReduceOp.SUM, async_op=asynchronously).wait()
        rank.synchronize(backend)

    for asynchronously in (True, False, True):
        call(asynchronously)
    if rank.rank == absent:
        rank.say("absent")
        rank.listen()
    call(True)
    rank.say("done")
    rank.listen()
    served = (backend.split("_")[0], "the communicator's backend")
    if backend in ("ncclx", devices.CTRAN_GPU):
        explained = comm.explain("all_reduce", 4000)
        served = (explained.algorithm, explained.why)
    comm.finalize()
    return served


@pytest.mark.parametrize(
    "backend",
    ["gloo", "nccl", "ncclx", devices.CTRAN_GPU, devices.GLOO_STAGED, devices.XCCL],
)
def test_other_backends_are_recorded_too(fresh_ranks: MakeRanks, backend: str) -> None:
    job = fresh_ranks(3).start(calls_on_a_backend_except_one, backend, 2)
    assert job.hear(2) == "absent"
    until(
        lambda: (
            [v["verdict"] for v in verdicts_of(job)] == ["missing_rank"]
            and verdicts_of(job)[0]["waiting"] == [0, 1]
        ),
        "the others wait",
    )
    (verdict,) = verdicts_of(job)
    assert verdict["ranks"] == [2]
    assert verdict["number"] == 4
    assert "rank 2 has not called all_reduce #4 (4000 B)" in verdict["text"]
    job.say(2)
    for rank in range(3):
        assert job.hear(rank) == "done"
    until(lambda: not any(map(running, only_one(job).ranks.values())), "all have ended")
    assert verdicts_of(job) == []
    ranks = only_one(job).ranks.values()
    for rank_number in range(3):
        job.say(rank_number)
    served = job.results()
    assert len(set(served)) == 1
    ((algorithm, why), *_) = served
    for rank in ranks:
        calls = [o for o in rank["operations"] if o["kind"] == "all_reduce"]
        assert [o["number"] for o in calls] == [1, 2, 3, 4]
        assert {o["call"] for o in calls} == {"all_reduce(sum, float32, 1000 elements)"}
        assert {o["algorithm"] for o in calls} == {algorithm}
        assert all(o["why"] and o["why"] in why for o in calls)  # of ncclx, ctran's own reason
        assert all(o["called"] <= o["started"] <= o["ended"] for o in calls)


def calls_differently(rank: Rank, backend: str, other: str) -> None:
    comm = rank.comm(backend)
    device = rank.device(backend)
    comm.all_reduce(torch.ones(100, device=device), ReduceOp.SUM, async_op=False)
    rank.say("ready")
    rank.listen()
    data = torch.ones(120 if other == "size" and rank.rank == 1 else 100, device=device)
    call = comm.broadcast if other == "call" and rank.rank == 1 else comm.all_reduce
    work = None
    with suppress(torchcomms.CommError):
        work = call(data, 0 if call == comm.broadcast else ReduceOp.SUM, async_op=True)
    rank.say("called")
    rank.listen()
    with suppress(torchcomms.CommError):
        if work is not None:
            work.wait()


# A process in which gloo gets another number of bytes than it expects ends.
@pytest.mark.parametrize(("backend", "other"), [("gloo", "call"), (devices.CTRAN_GPU, "size")])
def test_different_calls_of_another_backend_are_told(
    fresh_ranks: MakeRanks, backend: str, other: str
) -> None:
    job = fresh_ranks(3).start(calls_differently, backend, other)
    for rank in range(3):
        assert job.hear(rank) == "ready"
    assert verdicts_of(job) == []
    for rank in range(3):
        job.say(rank)
    for rank in range(3):
        assert job.hear(rank) == "called"
    verdict = verdicts_of(job)[0]
    assert verdict["verdict"] == ("different_sizes" if other == "size" else "different_calls")
    assert (verdict["ranks"], verdict["number"]) == ([1], 2)


def is_refused_once(rank: Rank) -> None:
    comm = rank.comm("gloo")
    data = torch.ones(10)
    for call in range(3):
        if (rank.rank, call) == (1, 1):
            with pytest.raises(torchcomms.CommError, match="is not defined"):
                comm.all_reduce(data, ReduceOp.BAND, async_op=False)
        comm.all_reduce(data, ReduceOp.SUM, async_op=False)
    rank.say("done")
    rank.listen()


def test_a_call_that_is_refused_does_not_count(fresh_ranks: MakeRanks) -> None:
    job = fresh_ranks(2).start(is_refused_once)
    for rank in range(2):
        assert job.hear(rank) == "done"
    assert verdicts_of(job) == []
    assert [rank["collectives"] for rank in only_one(job).ranks.values()] == [4, 4]
    for rank in range(2):
        job.say(rank)
    job.results()


def makes_two_alike(rank: Rank) -> None:
    for part in ([0, 1], [2, 3]):
        if rank.rank not in part:
            continue
        options = torchcomms.CommOptions()
        options.rank, options.size = part.index(rank.rank), len(part)
        comm = torchcomms.new_comm(
            "gloo", torch.device("cpu"), "pair", options=options, store=rank.store(f"pair{part[0]}")
        )
        comm.barrier(async_op=False)
    rank.say("ready")
    rank.listen()


def test_communicators_of_one_name_are_told_apart(fresh_ranks: MakeRanks) -> None:
    job = fresh_ranks(4).start(makes_two_alike)
    for rank in range(4):
        assert job.hear(rank) == "ready"
    for first in (0, 2):
        found = only_one(job, first)
        pids = [rank["pid"] for _, rank in sorted(found.ranks.items())]
        assert pids == [process.pid for process in job.ranks.processes[first : first + 2]]
    for rank in range(4):
        job.say(rank)
    job.results()


def calls_another(rank: Rank, hosts: int, other: str) -> str:
    comm = rank.comm("ctran", hosts)
    all_reduce(comm)
    rank.say("ready")
    rank.listen()
    data = torch.ones(120 if other == "size" and rank.rank == 1 else 100)
    call = comm.broadcast if other == "call" and rank.rank == 1 else comm.all_reduce
    root = 0 if call == comm.broadcast else ReduceOp.SUM
    with pytest.raises(torchcomms.CommError) as error:
        call(data, root, async_op=False)
    rank.say("failed")
    rank.listen()
    return str(error.value)


@pytest.mark.parametrize("other", ["size", "call"])
def test_a_rank_that_comes_after_the_failure_tells_what_it_has_called(
    fresh_ranks: MakeRanks, other: str
) -> None:
    job = fresh_ranks(4).start(calls_another, 1, other)
    for rank in range(4):
        assert job.hear(rank) == "ready"
    for rank in (1, 2):
        job.say(rank)
    for rank in (1, 2):
        assert job.hear(rank) == "failed"
    verdict = verdicts_of(job)[0]
    assert verdict["ranks"] == [1, 2], "one of them is the odd one, nobody knows which"
    for rank in (0, 3):
        job.say(rank)
        assert job.hear(rank) == "failed"
    verdict = verdicts_of(job)[0]
    assert verdict["ranks"] == [1]
    assert verdict["text"].count("ranks 0, 2 and 3 call all_reduce(") == 1
    for rank in range(4):
        job.say(rank)
    job.outcomes()


@HOSTS
@pytest.mark.parametrize("other", ["size", "call"])
def test_a_rank_that_calls_something_else_is_named(
    fresh_ranks: MakeRanks, hosts: int, other: str
) -> None:
    job = fresh_ranks(4).start(calls_another, hosts, other)
    for rank in range(4):
        assert job.hear(rank) == "ready"
    assert verdicts_of(job) == []
    for rank in range(4):
        job.say(rank)
    for rank in range(4):
        assert job.hear(rank) == "failed"
    verdict = verdicts_of(job)[0]
    assert verdict["verdict"] == ("different_sizes" if other == "size" else "different_calls")
    assert verdict["ranks"] == [1]
    assert verdict["number"] == 2
    assert ("120 elements" if other == "size" else "broadcast(") in verdict["text"]
    for rank in range(4):
        job.say(rank)
    job.outcomes()


def goes_on_after_death(rank: Rank, hosts: int) -> None:
    comm = rank.comm("ctran", hosts)
    all_reduce(comm, 77)
    rank.say("ready")
    rank.listen()
    with pytest.raises(torchcomms.PeerLostError):
        all_reduce(comm, 77)
    rank.say("lost")
    rank.listen()


@HOSTS
def test_survivors_have_what_a_killed_rank_has_recorded(fresh_ranks: MakeRanks, hosts: int) -> None:
    job = fresh_ranks(4).start(goes_on_after_death, hosts)
    for rank in range(4):
        assert job.hear(rank) == "ready"
    job.ranks.processes[1].signal(signal.SIGKILL)
    until_dead(job, 1)
    for rank in (0, 2, 3):
        job.say(rank)
        assert job.hear(rank) == "lost"
    verdict = verdicts_of(job)[0]
    assert (verdict["verdict"], verdict["ranks"]) == ("dead_process", [1])
    assert "it died after all_reduce #1 (308 B)" in verdict["text"]
    for rank in (0, 2, 3):
        job.say(rank)
    job.outcomes()


def needs_all_to_stay(rank: Rank, hosts: int, how: str) -> None:
    """Rank 1 is killed, or leaves and ends, before the last call; or none is, nor does."""
    comm = rank.comm("ctran", hosts)
    all_reduce(comm)
    rank.say("ready")
    rank.listen()
    if how == "all_stay":
        all_reduce(comm)
    elif rank.rank == 1:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        comm.finalize()
        os._exit(0)
    else:
        with pytest.raises(torchcomms.PeerLostError):
            all_reduce(comm)
    rank.say("done")
    rank.listen()
    if how == "all_stay":
        comm.finalize()


@pytest.mark.parametrize(
    ("how", "hosts", "found"),
    [
        ("killed", 3, [("dead_process", [1])]),
        ("leaves", 1, [("left", [1])]),
        ("leaves", 3, [("left", [1])]),
        ("all_stay", 3, []),
    ],
)
def test_a_rank_that_has_gone_is_named_also_if_it_took_its_record_with_it(
    fresh_ranks: MakeRanks, hosts: int, how: str, found: list[tuple[str, list[int]]]
) -> None:
    job = fresh_ranks(3).start(needs_all_to_stay, hosts, how)
    for rank in range(3):
        assert job.hear(rank) == "ready"
    if found:
        job.say(1)
        until_dead(job, 1)
    stay = (0, 2) if found else (0, 1, 2)
    for rank in stay:
        job.say(rank)
    for rank in stay:
        assert job.hear(rank) == "done"
    verdicts = verdicts_of(job)
    assert [(v["verdict"], v["ranks"]) for v in verdicts] == found
    assert all("rank 1 " in v["text"] for v in verdicts)
    for rank in stay:
        job.say(rank)
    job.outcomes()


def test_a_job_is_looked_at_again_when_who_named_it_has_died(
    fresh_ranks: MakeRanks, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = fresh_ranks(3).start(goes_on_after_death, 1)
    for rank in range(3):
        assert job.hear(rank) == "ready"
    pids = [process.pid for process in job.ranks.processes]
    looks: list[list[str]] = []

    def between_looks(_: float) -> None:
        looks.append([line.split()[-1] for line in capsys.readouterr().out.splitlines()[2:5]])
        if len(looks) == 1:
            job.ranks.processes[1].signal(signal.SIGKILL)
            until_dead(job, 1)
        if len(looks) == 2:
            for rank in (0, 2):
                job.ranks.processes[rank].signal(signal.SIGKILL)
                until_dead(job, rank)

    monkeypatch.setattr(top, "time", SimpleNamespace(sleep=between_looks))
    assert main(["top", str(pids[1])]) == 0
    assert [look[1] == "dead" for look in looks] == [False, True]
    assert f"the job has ended: there is no process {pids[1]}" in capsys.readouterr().err


def computes(rank: Rank, slow: int | None) -> None:
    comm = rank.comm("ctran")
    for call in range(60):
        if rank.rank == (call % rank.size if slow is None else slow):
            time.sleep(0.02)  # what it computes
        all_reduce(comm, 10)
    rank.say("done")
    rank.listen()


@pytest.mark.parametrize("slow", [1, None], ids=["always", "each_in_turn"])
def test_a_slow_rank_is_named(fresh_ranks: MakeRanks, slow: int | None) -> None:
    job = fresh_ranks(3).start(computes, slow)
    for rank in range(3):
        assert job.hear(rank) == "done"
    found = verdicts_of(job)
    assert [(v["verdict"], v["ranks"]) for v in found] == (
        [("slow_rank", [slow])] if slow is not None else []
    )
    for rank in range(3):
        job.say(rank)
    job.results()


def receives(rank: Rank) -> None:
    comm = rank.comm("ctran")
    if rank.rank == 0:
        comm.recv(torch.empty(3), 1, async_op=False)
    else:
        rank.listen()
        comm.send(torch.ones(3), 0, async_op=False)


def test_a_receive_whose_message_does_not_come_is_told(fresh_ranks: MakeRanks) -> None:
    job = fresh_ranks(2).start(receives)
    verdict = wait_for(job, "missing_message")
    assert (verdict["ranks"], verdict["waiting"]) == ([1], [0])
    job.say(1)
    job.results()


def puts_and_waits(rank: Rank, hosts: int) -> None:
    """Each way that a window has, once; then rank 0 keeps its second signal to itself."""
    comm = rank.comm("ctran", hosts)
    window = comm.window_allocate(1 << 20, signal_size=64)
    if rank.rank == 0:
        for text in ("first", "second"):
            window.put(torch.ones(100), 1, 0, async_op=False)
            if text == "second":
                rank.say("absent")
                rank.listen()
            window.signal(1, async_op=False)
        window.flush(1, async_op=True).wait()
        window.get(torch.ones(50_000), 1, 0, async_op=True).wait()
        window.signal(3, 7, 1, async_op=False)
    else:
        window.wait_signal(0, async_op=True).wait()
        window.wait_signal(0, async_op=False)
        window.wait_signal(3, 7, SignalCmpOp.EQ, async_op=False)
    rank.say("done")
    rank.listen()
    window.tensor_deregister()
    comm.finalize()


@HOSTS
def test_operations_of_windows_are_recorded(fresh_ranks: MakeRanks, hosts: int) -> None:
    def window() -> recorded.Communicator:
        found = recorded.live(job.ranks.processes[0].pid)
        (window,) = (c for c in found if c.name.endswith("/window"))
        return window

    job = fresh_ranks(2).start(puts_and_waits, hosts)
    assert job.hear(0) == "absent"

    def missing() -> list[dict[str, Any]]:
        return judge(window(), 0.2)

    until(missing, "the verdict")
    (verdict,) = missing()
    assert (verdict["verdict"], verdict["ranks"]) == ("missing_signal", [0])
    assert "rank 1 is in wait_signal(from rank 0) for " in verdict["text"]
    assert "; rank 0 has not sent that signal (" in verdict["text"]
    inside = running(window().ranks[1])
    assert inside is not None
    assert (inside["call"], inside["waits_for"]) == ("wait_signal(from rank 0)", 0)
    job.say(0)
    for rank in range(2):
        assert job.hear(rank) == "done"
    time.sleep(0.3)
    seen = window()
    assert judge(seen, 0.2) == [], "what a window does by itself is no message that is missing"
    calls = {r: [(o["call"], o["bytes"]) for o in messages(rank)] for r, rank in seen.ranks.items()}
    put, signal = ("put(400 bytes, to rank 1)", 400), ("signal(to rank 1)", 0)
    assert calls == {
        0: [
            *(put, signal, put, signal, ("flush(rank 1)", 0)),
            *(("get(200000 bytes, from rank 1)", 200_000), ("signal(3, to rank 1)", 0)),
        ],
        1: [*[("wait_signal(from rank 0)", 0)] * 2, ("wait_signal(signal 3)", 0)],
    }
    for rank in seen.ranks.values():
        assert all(o["called"] <= o["started"] <= o["ended"] for o in messages(rank))
    drawn = {
        ((a.rank, a.operation["number"]), (b.rank, b.operation["number"])) for a, b in arrows(seen)
    }
    first = min(o["number"] for o in messages(seen.ranks[0]))
    assert {((0, first), (1, 0)), ((0, first + 2), (1, 1)), ((0, first + 6), (1, 2))} <= drawn
    for rank in range(2):
        job.say(rank)
    job.results()


def test_a_stopped_rank_is_named(fresh_ranks: MakeRanks) -> None:
    job = fresh_ranks(3).start(calls_except_one, 1, 1)
    assert job.hear(1) == "absent"
    wait_for(job, "missing_rank")
    process = job.ranks.processes[1]
    process.signal(signal.SIGSTOP)
    try:
        until(lambda: "stopped by a signal" in wait_for(job, "missing_rank")["text"], "the reason")
    finally:
        process.signal(signal.SIGCONT)
    job.say(1)
    for rank in range(3):
        assert job.hear(rank) == "done"
        job.say(rank)
    job.results()


def run(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(arguments)
    return code, capsys.readouterr().out


def damages(recording: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What somebody else may send, one thing wrong in each."""

    def changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        copy = json.loads(json.dumps(recording))
        change(copy["communicators"][0])
        return copy

    yield changed(lambda c: c.update(name=None))
    yield changed(lambda c: c.update(name="world\n\x1b[31mred"))
    yield changed(lambda c: c.update(size=2.5))
    yield changed(lambda c: c["ranks"][0].pop("host"))
    yield changed(lambda c: c["ranks"][0].update(operations="many"))
    yield changed(lambda c: c["ranks"][0]["operations"].append({}))


def calls_of_halves(rank: Rank) -> None:
    """Rank 2 does not come to the second call of its half; rank 0 waits for it there."""
    comm = rank.comm("ctran", 1)
    half = comm.split([0, 2] if rank.rank % 2 == 0 else [1, 3], "half")
    assert half is not None
    for each in (comm, half):
        all_reduce(each, 1000)
    if rank.rank == 2:
        rank.say("absent")
        rank.listen()
    all_reduce(half, 1000)
    all_reduce(comm, 1000)
    half.finalize()
    comm.finalize()


def test_a_rank_that_waits_in_another_communicator_is_not_to_blame(
    fresh_ranks: MakeRanks, tmp_path: Path
) -> None:
    job = fresh_ranks(4).start(calls_of_halves)
    assert job.hear(2) == "absent"

    def verdicts() -> list[dict[str, Any]]:
        found = recorded.live(job.ranks.processes[0].pid)
        (world,) = (c for c in found if c.size == 4)
        return judge(world, 0.2, found)

    until(lambda: any("rank 0 is in" in verdict["text"] for verdict in verdicts()), "both")
    (verdict,) = verdicts()
    assert verdict["ranks"] == [2]
    assert verdict["waiting"] == [1, 3]
    assert "rank 2 has not called all_reduce #3 (4000 B) (rank 2, process" in verdict["text"]
    assert "; rank 0 is in all_reduce #2 (4000 B) of" in verdict["text"]
    line = tmp_path / "line.json"
    assert main(["trace", str(job.ranks.processes[0].pid), "-o", str(line)]) == 0
    events = json.loads(line.read_text())["traceEvents"]
    names = [e["pid"] for e in events if e["name"] == "process_name"]
    assert names == [0, 1, 2, 3], "each once"
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    calls = {
        (e["pid"], e["args"]["call"], threads[e["pid"], e["tid"]]) for e in events if e["ph"] == "X"
    }
    halves = {pid for pid, _, name in calls if name.startswith("half")}
    assert halves == {0, 1, 2, 3}, "ranks 1 and 3 of the world are 0 and 1 of their half"
    job.say(2)
    job.results()


def test_the_commands(
    fresh_ranks: MakeRanks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = fresh_ranks(3).start(calls_except_one, 1, 0)
    assert job.hear(0) == "absent"
    wait_for(job, "missing_rank")
    pid = str(job.ranks.processes[0].pid)
    kept, line = tmp_path / "kept.json", tmp_path / "line.json"
    more = ["--after", "0.1"]

    code, text = run(["analyze", pid, "--save", str(kept), *more], capsys)
    assert code == 1
    assert "stuck" in text
    assert "rank 0 has not called all_reduce #4" in text
    code, text = run(["top", pid, "--times", "1", *more], capsys)
    assert code == 0
    assert "all_reduce(sum, float32, 1000 elements)" in text
    code, text = run(["top", pid, "--times", "2", "--interval", "0.01", "--json"], capsys)
    assert [analysis.checked(look)["communicators"][0]["size"] for look in text.splitlines()] == [
        3,
        3,
    ]
    code, text = run(["trace", pid, "-o", str(line)], capsys)
    events = [e for e in json.loads(line.read_text())["traceEvents"] if e["ph"] == "X"]
    assert {e["pid"] for e in events} == {0, 1, 2}
    assert any(e["args"]["algorithm"] and e["args"]["why"] for e in events)
    assert sum("unfinished" in e["args"] for e in events) == 2

    job.say(0)
    for rank in range(3):
        assert job.hear(rank) == "done"
    code, text = run(["analyze", pid, "--json"], capsys)
    (communicator,) = analysis.checked(text)["communicators"]
    assert code == 0
    assert communicator["state"] == "idle"
    assert [rank["calls"] for rank in communicator["ranks"]] == [5, 5, 5]
    for rank in range(3):
        job.say(rank)
    job.results()

    code, text = run(["analyze", str(kept), "--json", *more], capsys)
    (communicator,) = analysis.checked(text)["communicators"]
    assert code == 1, "as it was then"
    for command in (["analyze"], ["top", "--times", "1"], ["trace", "-o", str(line)]):
        for damaged in damages(json.loads(kept.read_text())):
            kept.write_text(json.dumps(damaged))
            assert run([*command, str(kept)], capsys)[0] == 2, damaged
    assert communicator["verdicts"][0]["ranks"] == [0]


def parts_of(kept: Path, folder: Path) -> list[Path]:
    """What was kept, in a file for each of two hosts, of which each has booted at another time. In
    what was kept they get names."""
    whole = json.loads(kept.read_text())
    for c in whole["communicators"]:
        for rank in c["ranks"]:
            rank["host"] = f"host{2 * rank['rank'] // c['size']}"
    kept.write_text(json.dumps(whole))
    files = []
    for number in range(2):
        part = json.loads(kept.read_text())
        for c in part["communicators"]:
            c["ranks"] = [rank for rank in c["ranks"] if rank["host"] == f"host{number}"]
            for rank in c["ranks"]:
                _boot_later(rank, number * 1_000_000_000_000)
        files.append(folder / f"{number}.json")
        files[-1].write_text(json.dumps(part))
    return files


def _boot_later(rank: dict[str, Any], nanos: int) -> None:
    moments = {"now", "since", "called", "started", "first", "ended", "waits_since"}
    rank["realtime_offset"] += nanos
    for times in [rank, *rank["operations"]]:
        for name in times.keys() & moments:
            times[name] -= nanos if times[name] else 0


def test_hosts_are_looked_at_together(
    fresh_ranks: MakeRanks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = fresh_ranks(4).start(calls_except_one, 2, 1)
    assert job.hear(1) == "absent"
    wait_for(job, "missing_rank")
    kept, more = tmp_path / "kept.json", ["--json", "--after", "0.1"]
    run(["analyze", str(job.ranks.processes[0].pid), "--save", str(kept), *more], capsys)
    job.say(1)
    for rank in range(4):
        assert job.hear(rank) == "done"
        job.say(rank)
    job.results()

    here, there = map(str, parts_of(kept, tmp_path))

    def analyzed(*of: str) -> tuple[list[dict[str, Any]], Any]:
        code, text = run(["analyze", *of, *more], capsys)
        (communicator,) = analysis.checked(text)["communicators"]
        assert code == 1
        return communicator["verdicts"], communicator["traffic"]

    ((alone,), _), ((whole,), traffic) = analyzed(there), analyzed(str(kept))
    assert alone["verdict"] == "missing_elsewhere"
    assert (whole["verdict"], whole["ranks"]) == ("missing_rank", [1])
    together = ([whole], traffic)
    assert analyzed(here, there) == together
    once = ["--times", "1", "--after", "0.1"]
    _, screen = run(["top", str(kept), *once], capsys)
    with served([there]) as address:
        assert analyzed(here, address) == together
        assert run(["top", here, address, *once], capsys) == (0, screen)
        with served([here, address]) as both:
            assert analyzed(both) == together
        assert main(["analyze", here, f"{address}wrong"]) == 2
        assert "the token is missing or wrong" in capsys.readouterr().err
    assert main(["analyze", here, address]) == 2
    error = capsys.readouterr().err
    assert address.partition("?")[0] in error
    assert "token" not in error


def test_who_looks_at_two_jobs_does_not_make_them_one(fresh_ranks: MakeRanks) -> None:
    jobs = [made.start(calls_except_one, 1, 0) for made in (fresh_ranks(2), fresh_ranks(2))]
    assert [job.hear(0) for job in jobs] == ["absent", "absent"]
    pids = [job.ranks.processes[0].pid for job in jobs]
    with ExitStack() as stack:
        for pid in pids:
            (path,) = processes.memories(pid)
            stack.callback(os.close, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        assert [wait_for(job, "missing_rank")["ranks"] for job in jobs] == [[0], [0]]
    for job in jobs:
        job.say(0)
        for rank in range(2):
            assert job.hear(rank) == "done"
            job.say(rank)
        job.results()


def test_what_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with stranger() as pid:
        assert main(["analyze", str(pid)]) == 2
    assert "has no communicator" in capsys.readouterr().err
    assert main(["analyze", str(2**31 - 2)]) == 2  # beyond what the kernel gives
    assert "there is no process" in capsys.readouterr().err
    assert main(["analyze", "7" * 5000]) == 2
    assert "cannot be read" in capsys.readouterr().err
    for text in ("{}", "[", "[" * 100_000, "null"):
        bad = tmp_path / "bad.json"
        bad.write_text(text)
        assert main(["analyze", str(bad)]) == 2
        assert "is no recording" in capsys.readouterr().err
