"""Plans in Python: the builder, what can be asked of plans, and the command line."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness.programs import COMMAND

from torchcomms import CommError, _progress, plan
from torchcomms.cli import main


def exchange(*, wait: bool = True) -> plan.Plan:
    """Two ranks give each other their block, by hand."""
    b = plan.Builder("exchange", "all_gather", 2)
    slots = [b[r].scratch(1) for r in range(2)]
    there = [b.channel(b[r], b[1 - r]) for r in range(2)]
    back = [b.channel(b[1 - r], b[r], credits=1) for r in range(2)]
    for r, me in enumerate(b.ranks):
        me.move(me.input[0], to=me.output[r])
        me.move(me.input[0], to=slots[1 - r][0], wait=[back[r]], signal=[there[r]])
        waits = [there[1 - r]] if wait else []
        me.move(slots[r][0], to=me.output[1 - r], wait=waits, signal=[back[1 - r]])
        if not wait:
            me.wait(there[1 - r])
    return b.finish()


def test_a_plan_reads_like_its_algorithm() -> None:
    text = str(exchange())
    assert "plan exchange: all_gather over 2 ranks" in text
    assert "     1  wait c2 from 1; scratch[0]@1 = input[0]; signal c0 to 1" in text
    assert "     2  wait c1 from 1; output[1] = scratch[0]; signal c3 to 1" in text


def test_the_verifier_says_what_is_wrong_and_where() -> None:
    report = exchange().verify()
    assert report
    assert not report.findings
    assert report.in_place_safe
    report = exchange(wait=False).verify()
    assert not report
    finding = report.findings[0]
    assert (finding.kind, finding.lane) == ("race", 0)
    assert "nothing orders it with the" in finding.message
    assert finding.trace
    assert "race: rank" in str(report)


def test_the_builder_says_what_makes_no_sense() -> None:
    b = plan.Builder("bad", "all_reduce", 2, chunks=4)
    link = b.link(b[0], b[1])
    with pytest.raises(IndexError, match="chunks 0 to 3"):
        b[0].input[4]
    with pytest.raises(ValueError, match="one size"):
        b[0].move(b[0].input[0:2], to=b[0].output[0])
    with pytest.raises(ValueError, match="not the end"):
        b[1].move(b[1].input[0], to=link)
    b[0].move(b[0].input[0], to=b[0].output[1])
    with pytest.raises(ValueError, match="rank 0, lane 0, step 0: chunk 0 of input is part 0"):
        b.finish()
    with pytest.raises(ValueError, match="no plans for scatter"):
        plan.Builder("bad", "scatter", 2).finish()


def test_links_of_python_and_of_the_library_are_alike() -> None:
    ranks = 3
    b = plan.Builder("all_gather.ring", "all_gather", ranks)
    links = [b.link(b[r], b[r + 1]) for r in range(ranks)]
    for r in range(ranks):
        b[r].move(b[r].input[0], to=[b[r].output[r], links[r]])
        b[r].move(links[r - 1], to=[b[r].output[(r - 1) % ranks], links[r]])
        b[r].move(links[r - 1], to=b[r].output[(r - 2) % ranks])
    mine = b.finish()
    assert mine.verify()
    library = plan.make("all_gather.ring", ranks)
    assert mine.simulate(3000).seconds == pytest.approx(library.simulate(3000).seconds)


def test_lanes_and_packets() -> None:
    b = plan.Builder("lanes", "broadcast", 2, chunks=2)
    for i in range(2):
        link = b.link(b[0].lane(i), b[1].lane(i))
        b[0].lane(i).move(b[0].output[i], to=link, packet=True)
        b[1].lane(i).move(link, to=b[1].output[i], packet=True)
    made = b.finish()
    assert made.verify()
    assert "as packets" in str(made)
    assert "rank 1, lane 1" in str(made)


def test_plans_survive_files(tmp_path: Path) -> None:
    mine = exchange()
    mine.save(tmp_path / "plan.json")
    loaded = plan.Plan.load(tmp_path / "plan.json")
    assert loaded == mine
    assert hash(loaded) == hash(mine)
    assert (loaded.name, loaded.collective, loaded.ranks) == ("exchange", "all_gather", 2)
    for bad in ("[]", "{", '{"plan": 1}'):
        with pytest.raises(ValueError):  # noqa: PT011  (of several makers)
            plan.Plan.from_json(bad)


def test_simulation_knows_machines_and_faults() -> None:
    ring = plan.make("all_reduce.ring", 4)
    machine = {"local": {"latency": 1e-6, "overhead": 0, "bandwidth": 1e9}, "step_overhead": 0,
               "copy_bandwidth": 1e18, "reduce_bandwidth": 1e18}  # fmt: skip
    right = ring.simulate(1 << 20, machine)
    assert right.seconds == pytest.approx(6 * (1e-6 + (1 << 18) * 1e-9))
    slow = ring.simulate(1 << 20, {**machine, "slow_links": [[1, 2, 4.0]]})
    assert slow.seconds > 2 * right.seconds
    dead = ring.simulate(1 << 20, {**machine, "dead_ranks": [[1, 0.0]]})
    assert math.isinf(dead.seconds)
    assert any("waits for rank 1" in stuck for stuck in dead.stuck)
    assert "for ever" in str(dead)
    assert "<svg" in dead.svg()  # also of ranks that never do anything
    assert "<svg" in plan.make("all_reduce.ring", 2).simulate(1024, {"dead_ranks": [[1, 0]]}).svg()
    with pytest.raises(ValueError, match="has no 'speed'"):
        ring.simulate(1, {"speed": 3})


@pytest.mark.parametrize(
    "machine",
    [
        {"ranks_per_host": 0.5},
        {"cards_per_host": 0, "ranks_per_host": 1},
        {"local": {"latency": 1e308}, "slow_links": [[0, 1, 100]]},
        {"step_overhead": -1},
        {"slow_ranks": [[0, -2]]},
        {"dead_ranks": [[2**40, 1]]},
    ],
)
def test_machines_that_make_no_sense_are_refused(machine: dict[str, object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (of several makers)
        plan.make("all_reduce.ring", 2).simulate(1024, machine)


def test_destinations_of_a_step_do_not_overlap() -> None:
    steps = [
        {"to": [["scratch", 0], ["scratch", 1]], "from": [["input", 0]], "count": 2},
        {"to": [["output", 0]], "from": [["scratch", 0]], "count": 2},
    ]
    text = {"plan": 1, "name": "overlaps", "collective": "all_reduce", "ranks": 1, "chunks": 2,
            "scratch": 3, "channels": [], "programs": [[steps]]}  # fmt: skip
    with pytest.raises(ValueError, match="a destination overlaps another"):
        plan.Plan.from_json(json.dumps(text)).verify()


def test_estimates_go_beyond_what_is_simulated() -> None:
    simulated = plan.make("all_reduce.ring", 16).simulate(1 << 20).seconds
    assert plan.estimate("all_reduce.ring", 16, 1 << 20) == pytest.approx(simulated, rel=0.03)
    hosts = {"ranks_per_host": 8, "cards_per_host": 8}
    assert plan.estimate("all_reduce.ring", 100_000, 0, hosts) > 1
    assert plan.estimate("all_reduce.hierarchical", 100_000, 0, hosts) < 0.25
    with pytest.raises(ValueError, match="powers of two"):
        plan.estimate("all_reduce.halving_doubling", 100_000, 0, hosts)


def test_plans_are_made_for_topologies() -> None:
    for topology in ("nvswitch:4", "pcie:4", "hosts:2x2x1", "torus:2x3"):
        for collective in ("all_gather", "reduce_scatter", "all_reduce"):
            made = plan.synthesize(topology, collective)
            assert made.plan.verify(), (topology, collective)
            assert made.rate == made.bound
            size = 1 << 28
            assert made.seconds(size) == made.bound_seconds(size)
            assert 1 <= made.simulate(size).seconds / made.bound_seconds(size) < 1.15
    mine = {"ranks": 3, "links": [[0, "s", 10], [1, "s", 10], [2, "s", 20]]}
    assert plan.synthesize(mine).bound == pytest.approx(5)
    with pytest.raises(ValueError, match="not every rank can reach"):
        plan.synthesize({"ranks": 3, "links": [[0, 1, 5]]})
    with pytest.raises(ValueError, match="there are nvswitch"):
        plan.synthesize("mesh:4")


def samples_file(path: Path, machine: dict[str, object]) -> Path:
    """As ctran-bench would have measured on that machine."""
    lines = [{"plan": "", "op": "all_reduce", "ranks": 2, "bytes": 1, "units": 1, "seconds": 1.0,
              "fastest": 1.0}]  # fmt: skip
    for name in ("all_reduce.ring", "all_gather.direct_pull", "broadcast.chain"):
        for size in (1 << 12, 1 << 16, 1 << 20):
            seconds = plan.make(name, 2).simulate(size, machine, units=4).seconds
            lines.append({"plan": name, "op": name.split(".")[0], "ranks": 2, "bytes": size,
                          "units": 4, "seconds": 3 * seconds, "fastest": seconds})  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_machines_are_fitted_to_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = {"lanes_in_turns": True, "copy_bandwidth": 3e10, "start": 2e-6,
               "local": {"latency": 4e-7},
               "shared_memory": {"read_bandwidth": 2e10, "arrival": 1e-6}}  # fmt: skip
    file = samples_file(tmp_path / "samples", machine)
    samples = plan.read_samples(file)
    assert len(samples) == 9
    assert plan.compare(samples, machine).median == pytest.approx(0, abs=1e-6)
    fitted = plan.fit(samples)
    assert fitted.median < 0.05
    assert plan.compare(samples, fitted.machine).median == pytest.approx(fitted.median)
    slower = plan.read_samples(file, statistic="median")
    assert plan.compare(slower, fitted.machine).median == pytest.approx(2 / 3, abs=0.05)
    with pytest.raises(ValueError, match="no measured times"):
        plan.fit([])

    output = tmp_path / "machine.json"
    assert main(["plan", "fit", "--samples", str(file), "-o", str(output)]) == 0
    told = capsys.readouterr().out
    assert "not fitted to" in told
    assert "3 of 3 plans have a median error of 15 % or less" in told
    assert plan.make("all_reduce.ring", 2).simulate(1 << 20, json.loads(output.read_text()))


@pytest.mark.full
def test_times_are_measured() -> None:
    samples = plan.measure(2, sizes="4K", repeats=1)
    assert {sample.plan for sample in samples} >= {"all_reduce.ring", "broadcast.chain"}
    assert all(sample.seconds > 0 for sample in samples)
    with pytest.raises(CommError, match="ctran-bench failed"):
        plan.measure(1)


def test_pictures() -> None:
    timeline = plan.make("all_reduce.two_shot_pull", 3).simulate(1 << 16, units=2)
    root = ElementTree.fromstring(timeline.svg())
    marks = {child.tag.split("}")[1] for child in root}
    assert {"rect", "line", "text"} <= marks
    titles = [t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any("reduce(" in title for title in titles)
    assert any("bytes from rank" in title for title in titles)
    text = str(timeline)
    assert text.count("\n") >= 7
    assert "#" in text
    assert "+" in text


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["plan", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    assert "all_reduce.ring" in run("list")[1]
    code, out, _ = run("show", "all_reduce.ring:3:2")
    assert code == 0
    assert "rank 2, lane 1" in out
    code, out, _ = run("json", "broadcast.binomial:4")
    file = tmp_path / "plan.json"
    file.write_text(out)
    code, out, _ = run("verify", str(file))
    assert code == 0
    assert "no findings" in out
    data = json.loads(file.read_text())
    data["programs"][1][0][0]["wait"] = []
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps(data))
    code, out, _ = run("verify", str(broken))
    assert code == 1
    assert "unmatched: rank 0, lane 0 signals" in out
    assert "binomial" in run("simulate", str(file), "--bytes", "64K", "--units", "4")[1]
    assert run("draw", str(file), "-o", str(tmp_path / "plan.svg"))[0] == 0
    ElementTree.parse(tmp_path / "plan.svg")
    topology = tmp_path / "topology.json"
    topology.write_text(
        '{"ranks": 4, "links": [[0, "s", 9], [1, "s", 9], [2, "s", 9], [3, "s", 9]]}'
    )
    made = tmp_path / "made.json"
    for name in (str(topology), "torus:2x2"):
        code, out, err = run("synthesize", name, "--collective", "all_reduce", "-o", str(made))
        assert code == 0, err
        assert "every rank can send" in out
        assert run("verify", str(made))[0] == 0
    assert run("synthesise", "mesh:4")[0] == 2
    machine = tmp_path / "machine.json"
    machine.write_text('{"ranks_per_host": 2}')
    assert "<svg" in run("draw", str(file), "--machine", str(machine))[1]
    empty = tmp_path / "empty.json"
    empty.write_text("{}")
    for bad, why in (
        (str(tmp_path / "none.json"), "there is no file"),
        ("all_reduce.ring:x", "not NAME:RANKS"),
        ("all_reduce.ring:4:1:1", "not NAME:RANKS"),
        ("all_reduce.ring:0", "0 ranks"),
        (str(empty), "empty.json: there is no 'plan'"),
    ):
        code, _, err = run("verify", bad)
        assert code == 2
        assert err.startswith("error: ")
        assert why in err
    machine.write_text("[1")
    code, _, err = run("simulate", str(file), "--machine", str(machine))
    assert code == 2
    assert "machine.json: Expecting" in err
    with pytest.raises(SystemExit):
        run("simulate", str(file), "--bytes", "1Q")
    assert "'1Q' is not a size" in capsys.readouterr().err


def of_mscclpp(collective: str) -> str:
    """One rank that copies its input, as MSCCL++ writes it."""
    copy = {"name": "copy", "src_buff": [{"type": "i", "index": 0, "size": 1}],
            "dst_buff": [{"type": "o", "index": 0, "size": 1}]}  # fmt: skip
    gpu = {"id": 0, "input_chunks": 1, "output_chunks": 1, "scratch_chunks": 0,
           "threadblocks": [{"id": 0, "ops": [copy], "channels": []}]}  # fmt: skip
    return json.dumps({"name": "theirs", "collective": collective, "gpus": [gpu]})


def test_execution_plans_of_mscclpp_are_plans() -> None:
    theirs = plan.Plan.from_json(of_mscclpp("allreduce"))
    assert "output[0] = input[0]" in str(theirs)
    assert theirs.verify()
    assert "without a promise" in str(plan.Plan.from_json(of_mscclpp("sendrecv")))
    with pytest.raises(CommError, match="cannot express the collective gather"):
        plan.Plan.from_json(of_mscclpp("gather"))


def test_registration_takes_right_plans_only() -> None:
    with plan.make("all_reduce.ring", 2).register("nobody", min_bytes=10, max_bytes=20):
        pass
    with pytest.raises(ValueError, match="nothing orders it"):
        exchange(wait=False).register("nobody")
    with pytest.raises(CommError, match="64 at most"):
        plan.make("all_reduce.ring", 65).register("nobody")
    with pytest.raises(ValueError, match="cannot serve"):
        plan.make("all_reduce.ring", 2).register("nobody", min_bytes=3, max_bytes=2)


DEEP = "[" * 100_000 + "]" * 100_000


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan_file = tmp_path / "plan.json"
    plan.make("all_reduce.ring", 2).save(plan_file)
    sample = {"plan": "all_reduce.ring", "ranks": 2, "bytes": 64, "units": 1, "fastest": 1e-6}

    numbers = itertools.count()

    def file(name: str, content: object) -> str:
        path = tmp_path / str(next(numbers)) / name
        path.parent.mkdir()
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    samples = ("fit", "--samples")
    simulate = ("simulate", str(plan_file), "--machine")
    for arguments, why in (
        ((*samples, file("s", "3")), "s, line 1: a line is a JSON object; `ctran-bench --plans"),
        ((*samples, file("s", "{}")), "s, line 1: there is no 'plan'"),
        ((*samples, file("s", f"{json.dumps(sample)}\n{{")), "s, line 2: Expecting"),
        ((*samples, file("s", {**sample, "ranks": "2"})), "s, line 1: 'ranks' is '2'"),
        ((*samples, file("s", {**sample, "fastest": None})), "s, line 1: 'fastest' is None"),
        ((*samples, file("s", DEEP)), "s, line 1: the JSON is nested too deeply"),
        ((*samples, file("s", {**sample, "plan": "all_reduce.none"})), "s: there is no plan"),
        ((*samples, file("s", {**sample, "ranks": 10**30})), "s: "),
        ((*samples, file("s", {**sample, "fastest": 10**400})), "s, line 1: "),
        ((*samples, file("s", "")), "s has no times of plans"),
        ((*samples, file("s", b"\xff\xfe")), "s is no text"),
        ((*samples, str(tmp_path)), f"{tmp_path}: Is a directory"),
        (("synthesize", file("t.json", "3")), "t.json: a topology is a JSON object"),
        (("synthesize", file("t.json", "null")), "t.json: a topology is a JSON object"),
        (("synthesize", file("t.json", "[]")), "t.json: a topology is a JSON object"),
        (("synthesize", file("t.json", "{")), "t.json: Expecting"),
        (("synthesize", file("t.json", "{}")), "t.json: "),
        (("synthesize", file("t.json", DEEP)), "t.json: the JSON is nested too deeply"),
        (("synthesize", "nowhere.json"), "nowhere.json: "),
        (("verify", file("p.json", DEEP)), "p.json: the JSON is nested too deeply"),
        (("verify", file("p.json", '{"gpus": 3}')), "p.json: "),
        (("verify", file("p.json", "9" * 5000)), "p.json: "),
        (("verify", file("p.json", b"\xff")), "p.json: "),
        (("verify", str(tmp_path)), f"{tmp_path}: Is a directory"),
        (("show", "all_reduce.ring:" + "9" * 30), "all_reduce.ring:999"),
        ((*simulate, file("m.json", DEEP)), "m.json: the JSON is nested too deeply"),
        ((*simulate, file("m.json", "[]")), "m.json: a machine is a JSON object"),
        ((*simulate, file("m.json", {"step_overhead": "x"})), f"{plan_file} on "),
        ((*simulate, str(tmp_path / "none")), "none: No such file"),
        (("draw", str(plan_file), "-o", str(tmp_path)), f"{tmp_path}: Is a directory"),
        (("draw", str(plan_file), "-o", "/dev/full"), "/dev/full: No space left on device"),
    ):
        assert main(["plan", *arguments]) == 2, arguments
        out, err = capsys.readouterr()
        assert out == "", arguments
        assert err.startswith("error: "), err
        assert why in err, (why, err)
        assert err.count("\n") == 1, err
    for bad in ("9" * 400, "9" * 5000, "-1", "8E"):
        with pytest.raises(SystemExit):
            main(["plan", "synthesize", "torus:2x2", f"--bytes={bad}"])
        assert "is not a size" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["plan", "simulate", str(plan_file), "--units", "9" * 30])
    assert "is not a number" in capsys.readouterr().err


def test_bad_input_is_an_error_in_python_too() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        plan.Plan.from_json(DEEP)
    for bad in (3, None, [1]):
        with pytest.raises(ValueError, match="a topology is a name or an object"):
            plan.synthesize(bad)  # type: ignore[arg-type]


def test_the_engine_may_be_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> dict[str, str]:
        raise CommError("libctran_engine.so is not there")

    monkeypatch.setattr("torchcomms.plan._cli.library", missing)
    assert main(["plan", "list"]) == 2
    assert capsys.readouterr().err == "error: libctran_engine.so is not there\n"


class _Point:
    value = "broken.command"

    def load(self) -> object:
        raise ImportError("no module named broken")


def test_a_package_of_programs_that_cannot_be_imported_breaks_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torchcomms.plan._cli.entry_points", lambda group: [_Point()])
    assert main(["plan", "verify", "all_reduce.ring:2"]) == 0
    assert main(["env"]) == 0
    capsys.readouterr()
    assert main(["plan", "verify", "mine.py:program"]) == 2
    assert capsys.readouterr().err == (
        "error: mine.py:program is a program in Python, and broken.command, which reads programs, "
        "cannot be imported: ImportError: no module named broken\n"
    )
    monkeypatch.setattr("torchcomms.plan._cli.entry_points", lambda group: [])
    assert main(["plan", "verify", "mine.py:program"]) == 2
    assert "mscclpp, which reads programs, is not installed here" in capsys.readouterr().err


def _shell(line: str) -> tuple[int, str, str]:
    done = subprocess.run(
        ["bash", "-c", line.replace("torchcomms", COMMAND, 1)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    return done.returncode, done.stdout, done.stderr


def test_closed_and_full_streams_are_told() -> None:
    code, _, err = _shell("torchcomms plan show - <&-")
    assert (code, err) == (
        2,
        "error: standard input is closed: give a file, or NAME:RANKS\n",
    )
    code, _, err = _shell("torchcomms plan show - <<< '{'")
    assert (code, err.startswith("error: standard input: Expecting")) == (2, True)
    assert _shell("torchcomms plan list >&-")[::2] == (0, "")
    for what in ("plan show all_reduce.ring:8", "env"):
        code, _, err = _shell(f"torchcomms {what} > /dev/full")
        assert (code, "No space left on device" in err, err.count("\n")) == (2, True, 1), err
        # As `| head -1` of something long.
        line = f"torchcomms {what} | (exec <&-; exit 0); exit ${{PIPESTATUS[0]}}"
        assert _shell(line)[::2] == (141, "")


def test_answers_are_data_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def data(*arguments: str, code: int = 0) -> Any:
        assert main(["plan", *arguments, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    assert "all_reduce.ring" in {row["name"] for row in data("list")}
    right = data("verify", "all_reduce.ring:3")
    assert (right["right"], right["findings"]) == (True, [])
    assert right["in_place_safe"] is True
    file = tmp_path / "race.json"
    exchange(wait=False).save(file)
    wrong = data("verify", str(file), code=1)
    assert (wrong["right"], wrong["findings"][0]["kind"]) == (False, "race")
    line = data("simulate", "all_reduce.ring:2", "--bytes", "64K")
    assert line["seconds"] == max(line["ends"]) > 0
    machine = tmp_path / "machine.json"
    machine.write_text('{"dead_ranks": [[1, 0]]}')
    assert data("simulate", "all_reduce.ring:2", "--machine", str(machine))["seconds"] is None
    made = data("synthesize", "torus:2x2", "--collective", "all_gather")
    assert plan.Plan(made["plan"]).verify()
    assert made["seconds"]["simulated"] > 0
    samples = samples_file(tmp_path / "samples", {})
    fitted = data("fit", "--samples", str(samples))
    assert fitted["machine"]
    assert len(fitted["samples"]) == 9
    assert fitted["median_error_fitted_to"] >= 0


def test_what_takes_long_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_progress, "_FILE_SECONDS", 0.01)
    with _progress.during("counts"):
        time.sleep(0.2)
    assert capsys.readouterr().err.startswith("counts: 0 s\ncounts: 0 s\n")
    told: list[str] = []

    @contextmanager
    def during(what: str) -> Iterator[None]:
        told.append(what)
        yield

    monkeypatch.setattr(_progress, "during", during)
    assert main(["plan", "synthesize", "torus:2x2"]) == 0
    assert told == ["makes a plan for torus:2x2", "simulates it for 268435456 bytes"]
