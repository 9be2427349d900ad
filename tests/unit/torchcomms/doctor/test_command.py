"""The command on one host: its self-test, its output, its exit code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from harness.doctor import host_of
from harness.programs import COMMAND, Ended, finish, python_path, start

from torchcomms.cli import main
from torchcomms.cli.doctor import self_test
from torchcomms.cli.doctor.finding import BROKEN, GOOD, SLOW, Check, Host
from torchcomms.cli.doctor.host import CHECKS


def doctor(folder: Path, *arguments: str, **env: str) -> Ended:
    return finish(start([COMMAND, "doctor", *arguments], folder, env))


def test_a_good_host(tmp_path: Path) -> None:
    ended = doctor(tmp_path, "--json")
    report = json.loads(ended.out)
    assert report["schema"] == 1
    found = {one["check"]: one for one in report["findings"]}
    assert list(found) == [*(check.name for check in CHECKS), "self_test"]
    assert found["self_test"]["result"] == GOOD
    assert ended.code == int(report["result"] == BROKEN)
    assert "self-test of 2 processes: " in ended.err


def test_a_broken_host(tmp_path: Path) -> None:
    ended = doctor(tmp_path, CTRAN_LOG="loud")
    assert ended.code == 1
    assert "BROKEN  variables          CTRAN_LOG='loud' is not" in ended.out
    assert "\033" not in ended.out + ended.err


@pytest.mark.parametrize(
    ("torch", "said"),
    [
        ("raise OSError('libcudart.so.13 is not here')", "torch cannot be imported: libcudart"),
        ("", "torchcomms was built for torch 2."),
    ],
    ids=["broken", "another"],
)
def test_a_host_whose_torch_is(tmp_path: Path, torch: str, said: str) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(torch)
    (package / "version.py").write_text("__version__ = '1.2.3'\n")
    path = python_path(tmp_path)
    ended = doctor(tmp_path, "--json", PYTHONPATH=path, RANK="0", WORLD_SIZE="2")
    assert ended.code == 1, ended.err
    found = {one["check"]: one for one in json.loads(ended.out)["findings"]}
    assert list(found) == [*(check.name for check in CHECKS), "self_test"]
    assert found["torch"]["result"] == BROKEN
    assert found["torch"]["reason"].startswith(said)
    assert "pip install" in found["torch"]["todo"]
    assert found["self_test"]["reason"].startswith("left out: ")
    assert found["descriptors"]["result"] in (GOOD, SLOW)


def test_half_of_a_launcher(tmp_path: Path) -> None:
    ended = doctor(tmp_path, "--json", RANK="0")
    assert ended.code == 1
    assert "WORLD_SIZE is not" in json.loads(ended.out)["findings"][0]["reason"]


def quiet(_: str) -> None:
    pass


def test_a_self_test_that_does_not_end_in_time_is_ended(tmp_path: Path) -> None:
    found = self_test.on_this_host(Host(ranks=2), quiet, seconds=0.05)
    assert found.result == BROKEN
    assert "not ready after 0 s: rank 0 in" in found.reason


def test_a_process_of_the_self_test_that_fails_is_named(tmp_path: Path) -> None:
    host = host_of(tmp_path, environ={**os.environ, "TORCHCOMM_TIMEOUT_SECONDS": "abc"})
    found = self_test.on_this_host(host, quiet)
    assert found.result == BROKEN
    assert "TORCHCOMM_TIMEOUT_SECONDS='abc'" in found.reason


def test_a_self_test_that_is_slow() -> None:
    assert self_test.judge(4, 10.0, 500.0).result == GOOD
    assert self_test.judge(4, 9000.0, 9000.0).result == SLOW


def test_a_check_that_fails_itself_says_so(tmp_path: Path) -> None:
    def fail(_: Host) -> None:
        raise KeyError("x")

    found = Check("bad", "", "", fail).run(host_of(tmp_path))  # type: ignore[arg-type]
    assert found.result == BROKEN
    assert "KeyError" in found.reason


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", "--help"])
    assert "torchrun --nnodes 2" in capsys.readouterr().out


def test_names_of_checks_differ() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
