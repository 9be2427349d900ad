"""`torchcomms plan` and programs in Python."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import mscclpp.engine
import mscclpp.proof
from torchcomms.cli import main

Run = Callable[..., tuple[int, str, str]]
PROGRAMS = Path(__file__).parent / "programs"
TWO_SHOT = f"{PROGRAMS}/all_reduce_two_shot.py:program"

MINE = """
import mscclpp
from helper import exchange
from mscclpp.language import *

def all_gather(spec: mscclpp.AlgoSpec):
    with CollectiveProgram.from_spec(spec) as program:
        exchange(spec.world_size)
        for me in range(spec.world_size):
            own = Rank(me).get_input_buffer()[0:1]
            for peer in range(spec.world_size):
                there = Rank(peer).get_output_buffer()[me : me + 1]
                if peer == me:
                    Rank(me).copy(there, own, tb=0)
                else:
                    MemoryChannel(peer, me).put(there, own, tb=0)
        exchange(spec.world_size)
    return program

def forgetful(ranks=2):
    with CollectiveProgram("forgetful", AllReduce(ranks, 1, True), ranks) as program:
        MemoryChannel(1, 0).signal(tb=0)  # nobody waits
    return program

def wrong():
    with CollectiveProgram("wrong", AllReduce(2, 1, False), 2) as program:
        rank = Rank(0)
        rank.copy(rank.get_output_buffer()[0:2], rank.get_input_buffer()[0:2], tb=0)
    return program

def unknown():
    # More thread blocks wait for the same than there are orders to prove.
    with CollectiveProgram("unknown", AllReduce(1, 7, True), 1) as program:
        rank, data, scratch = Rank(0), Rank(0).get_input_buffer(), Buffer(0, 7)
        done = Semaphore(0, 0)
        for tb in range(7):
            rank.copy(scratch[tb], data[tb], tb=tb)
            done.release(tb=tb)
            done.acquire(tb=7 + tb)
        rank.barrier(list(range(7, 14)))
        for tb in range(7):
            rank.copy(data[tb], scratch[tb], tb=7 + tb)
    return program

written = wrong()
compiled = mscclpp.compile(written, verify=False)
number = 3
"""
HELPER = """
from mscclpp.language import MemoryChannel

def exchange(ranks):
    pairs = [(peer, me) for me in range(ranks) for peer in range(ranks) if peer != me]
    channels = [MemoryChannel(*pair) for pair in pairs]
    for channel in channels:
        channel.signal(tb=0)
    for channel in channels:
        channel.wait(tb=0)
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["plan", *arguments])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


def test_a_function_of_ranks_is_proved(run: Run) -> None:
    code, out, err = run("verify", TWO_SHOT, "--ranks", "8")
    assert (code, err) == (0, "")
    assert out == (
        "no findings\n  in place: yes\n  sums in rank order: yes\n  sums in one go: yes\n"
    )
    assert run("verify", TWO_SHOT)[0] == 0  # it has a default
    code, out, _ = run("show", TWO_SHOT, "--ranks", "2", "--instances", "2")
    assert code == 0
    assert "two_shot: allreduce of 2 ranks, in place; chunks: 4 of input" in out
    plan = json.loads(run("json", TWO_SHOT, "--ranks", "3")[1])
    assert (plan["name"], len(plan["gpus"])) == ("two_shot", 3)
    assert "two_shot: " in run("simulate", TWO_SHOT, "--ranks", "3", "--bytes", "64K")[1]
    assert run("draw", TWO_SHOT, "--ranks", "3")[1].startswith("<svg")


def test_a_function_of_a_specification_is_proved(run: Run, mine: Path) -> None:
    code, out, err = run("verify", f"{mine}:all_gather", "--ranks", "4", "--instances", "2")
    assert (code, err) == (0, "")
    assert "no findings" in out
    collective = ("--collective", "all_gather")
    assert run("verify", f"{mine}:all_gather", "--ranks", "2", *collective)[0] == 0


def test_what_is_wrong_is_told_with_its_line(run: Run, mine: Path) -> None:
    lines = MINE.splitlines()
    for name in ("wrong", "written", "compiled"):
        code, out, _ = run("verify", f"{mine}:{name}")
        assert code == 1
        line = next(n for n, text in enumerate(lines, 1) if "rank.copy(" in text)
        lacks = "wrong result: output[0] of rank 0 lacks input[0] of rank 1"
        assert out.startswith(f"{mine}:{line}: {lacks}"), out
    code, out, _ = run("verify", f"{mine}:forgetful")
    assert code == 1
    assert "rank 1 waits never" in out
    code, out, _ = run("verify", f"{mine}:forgetful", "--json")
    (finding,) = json.loads(out)["findings"]
    assert (code, finding["kind"]) == (1, "program")
    assert "rank 1 waits never" in finding["message"]
    code, out, _ = run("verify", f"{mine}:wrong", "--json")
    finding = json.loads(out)["findings"][0]
    assert (code, finding["kind"]) == (1, "wrong result")
    assert finding["locations"][0]["file"] == str(mine)


def test_what_cannot_be_asked_is_told(run: Run, mine: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    for name, why in (
        ("unknown", "cannot be verified yet: rank 0, thread block 7, 'sem_acquire'"),
        ("number", "is no CollectiveProgram but 3"),
        ("nothing", "has no 'nothing'"),
        ("all_gather", "is a function of spec: say --ranks"),
    ):
        code, _, err = run("verify", f"{mine}:{name}")
        assert (code, why in err) == (2, True), err
    for arguments, why in (
        ((f"{tmp_path}/none.py:x",), "there is no file"),
        ((f"{tmp_path}/broken.py:x",), "broken.py:1: ZeroDivisionError: division by zero"),
        ((f"{mine}:wrong", "--ranks", "3"), "so it cannot be told --ranks"),
        ((f"{PROGRAMS}/all_reduce_switch.py:program", "--ranks", "x"), ""),
    ):
        if why:
            code, _, err = run("verify", *arguments)
            assert (code, why in err) == (2, True), err
        else:
            with pytest.raises(SystemExit):
                run("verify", *arguments)
    code, _, err = run("simulate", f"{mine}:forgetful")
    assert (code, "rank 1 waits never" in err) == (2, True)


BAD = """
import sys
import mscclpp
from below import deep
from mscclpp.language import *

def no_instances(ranks):
    return None

def two(ranks, protocol):
    return None

def two_of_a_specification(spec, protocol):
    return None

def keyword(ranks, *, protocol):
    return None

def raises(ranks):
    {}["chunk"]

def asserts(ranks):
    assert ranks > 2

def wrong_type(ranks):
    return Rank("zero", 1, 2, 3)

def raises_below(ranks):
    deep()

def leaves(ranks):
    sys.exit(0)

def recurses(ranks):
    return recurses(ranks)

def interrupted(ranks):
    raise GeneratorExit

def imports_late(ranks):
    from below import nothing

def all_reduce_of_reductions(ranks=2):
    with CollectiveProgram("mixed", AllReduce(ranks, 1, True), ranks) as program:
        Rank(0).copy(3, 4)
    return program

def remarkable(ranks):
    return Odd()

class Odd:
    def __repr__(self):
        raise KeyError

def only_positions(ranks, /):
    with CollectiveProgram("none", AllReduce(ranks, 1, True), ranks) as program:
        pass
    return program
"""
BELOW = """
def deep():
    raise TypeError("two\\nlines")
"""


@pytest.mark.parametrize("what", ["show", "verify", "simulate", "draw", "json"])
def test_what_a_file_does_wrong_is_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.delitem(sys.modules, "below", raising=False)  # of another folder
    (tmp_path / "below.py").write_text(BELOW)
    file = tmp_path / "bad.py"
    file.write_text(BAD)

    def line(text: str, path: Path = file) -> str:
        number = next(n for n, one in enumerate(path.read_text().splitlines(), 1) if text in one)
        return f"error: {path}:{number}: "

    two = ("--ranks", "2")
    for name, more, why in (
        ("no_instances", (*two, "--instances", "2"), "so it cannot be told --instances"),
        ("no_instances", two, "returns no CollectiveProgram but None"),
        ("two", two, "give protocol a default"),
        ("two_of_a_specification", two, "give protocol a default"),
        ("keyword", two, "give protocol a default"),
        ("Odd", (), "is a class"),
        ("CollectiveProgram", two, "is a class"),
        ("sys", two, "is no CollectiveProgram but <module 'sys'"),
        ("raises", two, f"{line('{}[')}KeyError: 'chunk'"),
        ("asserts", two, f"{line('assert ranks')}AssertionError"),
        ("wrong_type", two, f"{line('zero')}TypeError: "),
        ("raises_below", two, f"{line('two', tmp_path / 'below.py')}TypeError: two lines"),
        ("leaves", two, f"{line('exit')}it exits (SystemExit: 0)"),
        ("recurses", two, f"{line('return recurses')}RecursionError: "),
        ("interrupted", two, f"{line('raise Gen')}GeneratorExit"),
        ("imports_late", two, f"{line('nothing')}ImportError: cannot import name 'nothing'"),
        ("all_reduce_of_reductions", (), line("copy(3")),
        ("remarkable", two, "returns no CollectiveProgram but a Odd"),
        ("nothing", two, "; it has no_instances, two, "),
    ):
        code, out, err = run(what, f"{file}:{name}", *more)
        assert (code, out) == (2, ""), name
        assert err.startswith("error: "), name
        assert why in err, (name, err)
        assert err.count("\n") == 1, err


def test_a_file_that_cannot_be_run_is_one_line(run: Run, tmp_path: Path) -> None:
    for name, text, why in (
        ("exits.py:x", "import sys\nsys.exit(3)", "exits.py:2: it exits (SystemExit: 3); a file"),
        ("syntax.py:x", "x = 1\ndef f(:", "syntax.py:2: SyntaxError: invalid syntax"),
        ("imports.py:x", "import nowhere", "imports.py:1: ModuleNotFoundError: No module named"),
        ("plain.py", "x = 1", "add :FUNCTION, as in"),
        ("plain.py:", "x = 1", "add :FUNCTION, as in"),
        ("path.py:x", "import sys; del sys.path[0]; x = 1", "path.py:x is no CollectiveProgram"),
    ):
        (tmp_path / name.partition(":")[0]).write_text(text)
        code, out, err = run("verify", f"{tmp_path}/{name}")
        assert (code, out, why in err, err.count("\n")) == (2, "", True, 1), err
    for ranks in ("0", "-1", "x", "9" * 5000):
        with pytest.raises(SystemExit):
            run("verify", TWO_SHOT, f"--ranks={ranks}")


def test_what_the_engine_cannot_do_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise mscclpp.engine.EngineError("the engine cannot do it\n  hint: nothing helps")

    monkeypatch.setattr(mscclpp.engine, "call", fail)
    monkeypatch.setattr(mscclpp.proof, "kept", lambda _: None)  # of the tests before
    for what in ("show", "verify", "simulate", "draw"):
        code, out, err = run(what, TWO_SHOT)
        said = f"error: {TWO_SHOT}: the engine cannot do it hint: nothing helps\n"
        assert (code, out, err) == (2, "", said), what


def test_positions_and_settings_are_told(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "below", raising=False)
    (tmp_path / "below.py").write_text(BELOW)
    (tmp_path / "bad.py").write_text(BAD)
    plan = json.loads(run("json", f"{tmp_path}/bad.py:only_positions", "--ranks", "3")[1])
    assert len(plan["gpus"]) == 3
    plan = json.loads(run("json", TWO_SHOT, "--ranks", "2", "--instances", "2")[1])
    assert len(plan["gpus"]) == 2
