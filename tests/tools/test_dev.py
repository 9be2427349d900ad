"""tools/dev.py chooses what `make test` does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import dev

BOTH = ["ASan and UBSan", "TSan"]


@pytest.fixture(autouse=True)
def _nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SANITIZE", raising=False)


@pytest.mark.parametrize(("commit", "chosen"), [("a", BOTH[:1]), ("7", BOTH[1:]), ("", BOTH)])
def test_the_commit_chooses_a_sanitizer(
    monkeypatch: pytest.MonkeyPatch, commit: str, chosen: list[str]
) -> None:
    told = subprocess.CompletedProcess([], 0, stdout=f"{commit and 39 * 'f'}{commit}\n")
    monkeypatch.setattr(dev.subprocess, "run", lambda *_, **__: told)
    assert dev.sanitizers(full=False) == chosen
    assert dev.sanitizers(full=True) == BOTH


def test_whoever_says_which_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, chosen in {"address": BOTH[:1], "thread": BOTH[1:], "all": BOTH}.items():
        monkeypatch.setenv("SANITIZE", name)
        assert dev.sanitizers(full=False) == chosen
    monkeypatch.setenv("SANITIZE", "memory")
    with pytest.raises(SystemExit, match="say address, thread, or all"):
        dev.sanitizers(full=False)


def test_what_it_starts_keeps_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert "PYTHONDONTWRITEBYTECODE" not in dev.Environment().variables()
