"""tools/console.py runs commands beside each other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from console import CommandFailed, attach_all

MEETS = """
import pathlib, sys, time
own, other = map(pathlib.Path, sys.argv[1:])
own.touch()
deadline = time.monotonic() + 60
while not other.exists():
    assert time.monotonic() < deadline, f"{other} has not come"
    time.sleep(0.01)
print(f"{own.name} has met {other.name}")
"""


def test_commands_run_at_the_same_time_and_who_fails_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python, one, two = sys.executable, str(tmp_path / "one"), str(tmp_path / "two")
    commands = {"first": [python, "-c", MEETS, one, two], "second": [python, "-c", MEETS, two, one]}
    attach_all(commands)
    said = capsys.readouterr().out
    assert "==> first\none has met two\n  done in" in said
    assert "==> second\ntwo has met one\n  done in" in said
    commands["third"] = [python, "-c", "import sys; print('why', file=sys.stderr); sys.exit(3)"]
    with pytest.raises(CommandFailed, match=r"^third$"):
        attach_all(commands)
    said = capsys.readouterr().out
    assert "==> third\nwhy\n  failed after" in said
    assert said.count(" has met ") == 2
