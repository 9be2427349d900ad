"""PyTorch's own distributed tests end on `ctran` as on PyTorch's Gloo; run.py says how."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from harness.programs import finish, start

PROGRAM = Path(__file__).with_name("run.py")
spec = importlib.util.spec_from_file_location("pytorch_run", PROGRAM)
assert spec is not None
assert spec.loader is not None
run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run)


def ends_as_expected(*arguments: str, folder: Path, guard: float) -> None:
    ended = finish(start([sys.executable, str(PROGRAM), *arguments], folder, {}), guard)
    assert ended.code == 0, ended.out + ended.err


@pytest.mark.timeout(900)
def test_the_fast_ones(tmp_path: Path) -> None:
    ends_as_expected("--fast", folder=tmp_path, guard=840)


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_all(tmp_path: Path) -> None:
    ends_as_expected(folder=tmp_path, guard=7000)


GLOO = {("a", 3): "passed", ("a", 4): "passed", ("b", 3): "skipped", ("c", 3): "failed"}


@pytest.mark.parametrize(
    ("ctran", "expected", "unexpected", "gone"),
    [
        ({("a", 3): "passed", ("a", 4): "passed", ("c", 3): "passed"}, {}, [], []),
        ({("a", 3): "passed", ("a", 4): "failed"}, {}, [("a", 4)], []),
        ({("a", 3): "passed", ("a", 4): "failed"}, {("a", 4): "failed"}, [], []),
        ({("a", 3): "skipped"}, {("a", 3): "failed"}, [("a", 3)], []),
        ({("a", 3): "passed"}, {("a", 3): "failed"}, [], [("a", 3)]),
        ({("a", 3): "passed"}, {("unknown", 3): "failed"}, [], []),
    ],
)
def test_what_counts_as_a_difference(
    ctran: dict[tuple[str, int], str],
    expected: dict[tuple[str, int], str],
    unexpected: list[tuple[str, int]],
    gone: list[tuple[str, int]],
) -> None:
    found = run.compare(GLOO, ctran, expected)
    assert [list(part) for part in found] == [unexpected, gone]


def test_expected_differences_have_reasons() -> None:
    assert run.expected_differences()
