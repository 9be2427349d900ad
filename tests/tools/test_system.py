"""tools/system.py installs what is missing, or says what to type."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import system

MISSING = system.Need("a thing", "libthing-dev", lambda: False)


def test_what_works_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "run", lambda *_, **__: pytest.fail("runs something"))
    system.install_missing([system.Need("a shell", "dash", lambda: True)])


def test_without_root_it_says_what_to_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(system, "administrator", lambda: None)
    monkeypatch.setattr(system.shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(SystemExit, match="1"):
        system.install_missing([MISSING])
    said = capsys.readouterr()
    assert "missing: a thing" in said.out
    assert "sudo apt-get install libthing-dev" in said.err


def test_without_packages_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(system.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="1"):
        system.install_missing([MISSING])
    assert "no apt-get" in capsys.readouterr().err


def test_every_need_of_rdma_has_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system.shutil, "which", lambda name: None)
    for need in system.needs_of_rdma():
        assert need.what
        assert need.package
        assert isinstance(need.works(), bool)


def test_elsewhere_rdma_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(system.platform, "machine", lambda: "aarch64")
    with pytest.raises(SystemExit, match="1"):
        system.refuse_rdma_elsewhere()
    assert "aarch64" in capsys.readouterr().err
