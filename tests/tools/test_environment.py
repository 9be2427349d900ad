"""tools/environment.py installs by uv what uv and pip understand alike, else by pip."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import environment
from console import CommandFailed


class Installs:
    """An environment whose installers note that they were called."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.called: list[str] = []
        self.failing: set[str] = set()
        self._environment = environment.Environment(folder)
        for name, target in (("uv", "/bin/true"), ("python", sys.executable)):
            program = folder / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(f'#!/bin/sh\nexec {target} "$@"\n')
            program.chmod(0o755)
        monkeypatch.setattr(environment, "run", self._run)
        for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_CONSTRAINT"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")

    def _run(self, _title: str, command: list[str], **_: Any) -> None:
        name = Path(command[0]).name
        self.called.append("pip" if name == "python" else name)
        if self.called[-1] in self.failing:
            raise CommandFailed(name)

    def of(self, *arguments: str) -> list[str]:
        self.called.clear()
        self._environment.install("something", "Installing", *arguments)
        return self.called


@pytest.fixture
def installs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installs:
    return Installs(tmp_path, monkeypatch)


def test_uv_installs_once(installs: Installs) -> None:
    assert installs.of("torch") == ["uv"]
    assert installs.of("torch") == []
    assert installs.of("-r", "requirements.txt") == ["uv"]


def test_pip_installs_where_uv_cannot(installs: Installs, tmp_path: Path) -> None:
    installs.failing.add("uv")
    assert installs.of("torch") == ["uv", "pip"]
    assert installs.of("torch") == []
    (tmp_path / "bin" / "uv").unlink()
    assert installs.of("torch==2.8.0") == ["pip"]


def test_pip_reads_its_own_options_and_settings(
    installs: Installs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert installs.of("torch", "--index-url", "https://example.invalid") == ["pip"]
    monkeypatch.setenv("PIP_INDEX_URL", "https://example.invalid")
    assert installs.of("torch") == ["pip"]


def test_what_both_fail_to_install_is_tried_again(installs: Installs) -> None:
    installs.failing |= {"uv", "pip"}
    for _ in range(2):
        with pytest.raises(CommandFailed):
            installs.of("torch")
        assert installs.called == ["uv", "pip"]
