"""`torchcomms plan` and programs in Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

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
    with CollectiveProgram("unknown", SendRecv(2, 1, False), 2) as program:
        pass
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


def test_what_cannot_be_asked_is_told(run: Run, mine: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    for name, why in (
        ("unknown", "cannot be verified yet: the collective sendrecv"),
        ("number", "is no CollectiveProgram but 3"),
        ("nothing", "has no 'nothing'"),
        ("all_gather", "is a function of spec: say --ranks"),
    ):
        code, _, err = run("verify", f"{mine}:{name}")
        assert (code, why in err) == (2, True), err
    for arguments, why in (
        ((f"{tmp_path}/none.py:x",), "there is no file"),
        ((f"{tmp_path}/broken.py:x",), "broken.py: ZeroDivisionError: division by zero"),
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
