"""What slows a job down, as `torchcomms analyze` says it, and what goes between its ranks."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import Job, Rank, Ranks, analysis
from harness.failing import all_reduce, barrier

from torchcomms import ReduceOp
from torchcomms.cli import main
from torchcomms.cli.records import job as recorded
from torchcomms.cli.records.command import report
from torchcomms.cli.records.top import Rates
from torchcomms.cli.records.traffic import traffic
from torchcomms.cli.records.verdicts import judge

MakeRanks = Callable[[int], Ranks]


def look(job: Job) -> recorded.Communicator:
    (communicator,) = recorded.live(job.ranks.processes[0].pid)
    return communicator


def judged(communicator: recorded.Communicator) -> list[dict[str, Any]]:
    verdicts = judge(communicator)
    analysis.checked(json.dumps(report([(communicator, verdicts)])))
    return verdicts


def start(fresh_ranks: MakeRanks, size: int, program: Callable[..., None], *given: Any) -> Job:
    job = fresh_ranks(size).start(program, *given)
    for rank in range(size):
        assert job.hear(rank) == "ready"
    return job


def end(job: Job) -> None:
    for process in job.ranks.processes:
        job.say(process.index)
    job.results()


def takes_turns(rank: Rank, slow: int | None) -> None:
    """A step is an all_reduce and a broadcast; before the broadcast one rank computes for long."""
    comm = rank.comm("ctran")
    for step in range(40):
        all_reduce(comm, 100)
        if rank.rank == (step % rank.size if slow is None else slow):
            time.sleep(0.02)
        comm.broadcast(torch.ones(50), 0, async_op=False)
    rank.say("ready")
    rank.listen()


@pytest.mark.parametrize("slow", [1, None], ids=["one", "each_in_turn"])
def test_a_rank_that_is_slow_in_one_phase(fresh_ranks: MakeRanks, slow: int | None) -> None:
    job = start(fresh_ranks, 3, takes_turns, slow)
    verdicts = [v for v in judged(look(job)) if v["verdict"] == "slow_rank"]
    assert [v["ranks"] for v in verdicts] == ([[slow]] if slow is not None else [])
    for verdict in verdicts:
        assert {
            "after": "all_reduce(sum, float32, 100 elements)",
            "call": "broadcast(float32, 50 elements, root 0)",
        } in verdict["phases"]
        assert verdict["confidence"] >= 0.7
    end(job)


def exchanges(rank: Rank, uneven: str) -> None:
    """Rank 2 sends eight times as much as the others, or gets it, or nobody does."""
    comm = rank.comm("ctran")

    def count(source: int, target: int) -> int:
        odd = {"sends": source, "gets": target, "even": None}[uneven]
        return 800 if odd == 2 else 100

    inputs = [count(rank.rank, target) for target in range(rank.size)]
    outputs = [count(source, rank.rank) for source in range(rank.size)]
    data, result = torch.ones(sum(inputs)), torch.empty(sum(outputs))
    for _ in range(30):
        comm.all_to_all_v_single(result, data, outputs, inputs, async_op=False)
    rank.say("ready")
    rank.listen()


@pytest.mark.parametrize("uneven", ["sends", "gets", "even"])
def test_an_uneven_exchange(fresh_ranks: MakeRanks, uneven: str) -> None:
    job = start(fresh_ranks, 4, exchanges, uneven)
    verdicts = [v for v in judged(look(job)) if v["verdict"] == "imbalance"]
    if uneven == "even":
        assert verdicts == []
    else:
        (verdict,) = verdicts
        assert verdict["ranks"] == [2]
        assert verdict["way"] == ("sent" if uneven == "sends" else "received")
        assert verdict["ratio"] == pytest.approx(32 / 11, rel=0.01)
        assert f"rank 2 {uneven} 2.91 times" in verdict["text"]
    end(job)


def trains(rank: Rank, how: str) -> None:
    """A step computes for as long as its calls after the first take, and makes its four calls
    afterwards or before. There are 24 steps, and 24 more whenever somebody asks for them."""
    comm = rank.comm("ctran")
    gradients = [torch.ones(1 << 20) for _ in range(4)]
    passed: list[float] = []

    def step() -> None:
        works = []
        if how == "before":
            works = [comm.all_reduce(data, ReduceOp.SUM, async_op=True) for data in gradients]
        for data in gradients:
            # As long as most of them: a busy machine makes some take ten times as long.
            usual = statistics.median(passed) if passed else 0.01
            time.sleep(max(usual, 0.002) / len(gradients))
            if how == "between":
                comm.all_reduce(data, ReduceOp.SUM, async_op=False)
        if how == "after":
            for data in gradients:
                comm.all_reduce(data, ReduceOp.SUM, async_op=False)
                if data is gradients[0]:  # in which this rank waits for the other one
                    begun = time.monotonic()
            passed.append(time.monotonic() - begun)
        for work in works:
            work.wait()

    asked = True
    while asked:
        for _ in range(24):
            step()
        rank.say("ready")
        asked = rank.listen()


@pytest.mark.parametrize("how", ["after", "between", "before"])
def test_communication_that_could_have_run_before(fresh_ranks: MakeRanks, how: str) -> None:
    job = start(fresh_ranks, 2, trains, how)

    def found() -> list[dict[str, Any]]:
        return [v for v in judged(look(job)) if v["verdict"] == "lost_overlap"]

    verdicts = found()
    if how == "after":
        for _ in range(20):  # on a busy machine ranks wait for each other for longer than for data
            if verdicts:
                break
            for rank in range(2):
                job.say(rank, True)
            assert [job.hear(rank) for rank in range(2)] == ["ready", "ready"]
            verdicts = found()
        (verdict,) = verdicts
        assert verdict["ranks"] == [0, 1]
        assert verdict["loss"] >= 0.2
        assert "4 calls that block, one after another" in verdict["text"]
    else:
        assert verdicts == []
    end(job)


def registers(rank: Rank, again: bool) -> None:
    """Registers the memory of each call, or that of all before the first one."""
    comm = rank.comm("nccl")
    data = torch.ones(1000, device=rank.device("nccl"))
    if not again:
        comm.tensor_register(data)
    for _ in range(30):
        if again:
            comm.tensor_register(data)
        comm.all_reduce(data, ReduceOp.SUM, async_op=False)
        rank.synchronize("nccl")
        if again:
            comm.tensor_deregister(data)
    rank.say("ready")
    rank.listen()


@pytest.mark.parametrize("again", [True, False], ids=["each_time", "once"])
def test_memory_that_is_registered_again_and_again(fresh_ranks: MakeRanks, again: bool) -> None:
    job = start(fresh_ranks, 2, registers, again)
    found = recorded.live(job.ranks.processes[0].pid)
    (communicator,) = (c for c in found if c.name == "nccl-2")
    verdicts = [v for v in judged(communicator) if v["verdict"] == "preparation"]
    assert [v["ranks"] for v in verdicts] == ([[0, 1]] if again else [])
    for verdict in verdicts:
        assert "in 22 of the last 22 collectives" in verdict["text"]
    end(job)


SENT = 5000  # elements


def sends(rank: Rank, hosts: int) -> None:
    """Rank 0 sends messages of different sizes to rank 1, and one to rank 3."""
    comm = rank.comm("ctran", hosts)
    barrier(comm)
    rank.say("ready")
    rank.listen()
    if rank.rank == 0:
        for count in (1, 2, 3):
            comm.send(torch.ones(count * SENT), 1, async_op=False)
        comm.send(torch.ones(SENT), 3, async_op=False)
    elif rank.rank == 1:
        for count in (1, 2, 3):
            comm.recv(torch.empty(count * SENT), 0, async_op=False)
    elif rank.rank == 3:
        comm.recv(torch.empty(SENT), 0, async_op=False)
    rank.say("ready")
    rank.listen()


@pytest.mark.parametrize("hosts", [1, 2])
def test_what_goes_between_ranks(fresh_ranks: MakeRanks, hosts: int) -> None:
    job = start(fresh_ranks, 4, sends, hosts)
    rates = Rates()
    assert rates.of(look(job)) == "", "nothing to compare with"
    before = traffic(look(job))
    for rank in range(4):
        job.say(rank)
    for rank in range(4):
        assert job.hear(rank) == "ready"
    now = traffic(look(job))
    moved = {tuple(way): count - before.get(way, 0) for way, count in now.items()}
    far = "shm" if hosts == 1 else "tcp"
    assert moved[0, 1, "shm"] == 6 * 4 * SENT
    assert moved[0, 3, far] == 4 * SENT
    shown = rates.of(look(job))
    assert shown.startswith("0 > 1 shm ")
    assert f"0 > 3 {far} " in shown
    end(job)


def test_arrows_go_from_sends_to_their_receives(fresh_ranks: MakeRanks, tmp_path: Path) -> None:
    job = start(fresh_ranks, 4, sends, 2)
    for rank in range(4):
        job.say(rank)
    for rank in range(4):
        assert job.hear(rank) == "ready"
    file = tmp_path / "line.json"
    pid = str(job.ranks.processes[0].pid)
    assert main(["trace", pid, "-o", str(file), "--last", "10min"]) == 0
    events = json.loads(file.read_text())["traceEvents"]
    drawn = [e for e in events if e["ph"] == "X" and e["cat"] == "message"]

    def tips(phase: str) -> dict[int, list[tuple[int, int]]]:
        """By arrow: rank and bytes of the messages in which it begins or ends."""
        return {
            tip["id"]: [
                (e["pid"], e["args"]["bytes"])
                for e in drawn
                if (e["pid"], e["tid"]) == (tip["pid"], tip["tid"])
                and e["ts"] <= tip["ts"] < e["ts"] + e["dur"]
            ]
            for tip in events
            if tip["ph"] == phase
        }

    sources, targets = tips("s"), tips("f")
    assert sources.keys() == targets.keys()
    pairs = [
        (source[0][0], target[0][0], source[0][1], target[0][1])
        for source, target in ((sources[arrow], targets[arrow]) for arrow in sources)
        if source and target
    ]
    assert sorted(pairs) == [
        (0, 1, 4 * SENT, 4 * SENT),
        (0, 1, 8 * SENT, 8 * SENT),
        (0, 1, 12 * SENT, 12 * SENT),
        (0, 3, 4 * SENT, 4 * SENT),
    ]
    end(job)


def meets(rank: Rank) -> None:
    comm = rank.comm("ctran")
    for _ in range(20):
        all_reduce(comm, 100)
    rank.say("ready")
    rank.listen()


@pytest.mark.parametrize("ahead", [0, 3_000_000_000, -3_000_000_000])
def test_the_clocks_of_hosts_are_put_right(
    fresh_ranks: MakeRanks, tmp_path: Path, ahead: int
) -> None:
    job = start(fresh_ranks, 4, meets)
    kept, line = tmp_path / "kept.json", tmp_path / "line.json"
    main(["analyze", str(job.ranks.processes[0].pid), "--save", str(kept)])
    end(job)
    content = json.loads(kept.read_text())
    for rank in content["communicators"][0]["ranks"]:
        rank["host"] = f"host{rank['rank'] // 2} (pid {rank['pid']})"
        rank["realtime_offset"] += ahead * (rank["rank"] // 2)
    kept.write_text(json.dumps(content))
    assert main(["trace", str(kept), "-o", str(line)]) == 0
    drawn = json.loads(line.read_text())
    clocks = drawn["otherData"]["clocks"]
    assert clocks["host0"] == {"offset_nanos": 0, "error_nanos": 0}
    offset, error = (clocks["host1"][key] for key in ("offset_nanos", "error_nanos"))
    assert abs(offset - ahead) <= error < 1_000_000_000
    for number in range(1, 21):
        calls = [e for e in drawn["traceEvents"] if e.get("args", {}).get("number") == number]
        assert len(calls) == 4
        begins = [e["ts"] - e["args"]["queued_us"] for e in calls]
        ends = [e["ts"] + e["dur"] for e in calls]
        assert max(begins) <= min(ends) + 0.01, "nobody ends before all have called"


@pytest.mark.parametrize("text", ["soon", "10 h", "-1", "1.2.3s"])
def test_a_time_that_is_none(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["trace", "-o", "file", f"--last={text}"])
    assert "nor a time" in capsys.readouterr().err
