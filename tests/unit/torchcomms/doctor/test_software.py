"""Checks of torch's version and of environment variables."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.doctor import host_of

from torchcomms.cli.doctor import software
from torchcomms.cli.doctor.finding import BROKEN, GOOD, SLOW


def test_torch(tmp_path: Path) -> None:
    assert software.torch_version(host_of(tmp_path)).result == GOOD
    found = software.compare_torch("2.14.0+cpu", "2.15.1")
    assert found.result == BROKEN
    assert "for torch 2.14.0+cpu, but torch 2.15.1" in found.reason


@pytest.mark.parametrize(
    ("environ", "result", "said"),
    [
        ({"HOME": "/root"}, GOOD, "none is set"),
        ({"CTRAN_LOG": "debug", "TORCHCOMM_TIMEOUT_SECONDS": "0.5"}, GOOD, "CTRAN_LOG"),
        ({"TORCHCOMMS_BACKEND_LIB_PATH_MINE": "/x"}, GOOD, "MINE"),
        ({"CTRAN_TCP_INTERFACE": "eth0"}, SLOW, "is CTRAN_TCP_INTERFACES meant?"),
        ({"TORCHCOMM_ZZZZZZ": "1"}, SLOW, "TORCHCOMM_ZZZZZZ means nothing"),
        ({"CTRAN_LOG": "loud"}, BROKEN, "is not a list of levels"),
        ({"CTRAN_SPIN_MICROS": "1.5"}, BROKEN, "is not an integer"),
        ({"CTRAN_GPU_THROUGH_HOST": "maybe"}, BROKEN, "is not a truth value"),
        ({"TORCHCOMM_TIMEOUT_SECONDS": "soon"}, BROKEN, "is not a number of seconds"),
    ],
)
def test_variables(tmp_path: Path, environ: dict[str, str], result: str, said: str) -> None:
    found = software.variables(host_of(tmp_path, environ=environ))
    assert found.result == result
    assert said in found.reason


def test_variables_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "variables"
    monkeypatch.setenv("TORCHCOMM_CONFIG", str(file))
    found = software.variables(host_of(tmp_path, environ={}))
    assert found.result == BROKEN
    assert f"TORCHCOMM_CONFIG: the file '{file}' cannot be read" in found.reason

    file = tmp_path / "others"
    file.write_text("CTRAN_SPIN_MICROS=soon\nCTRAN_TCP_INTERFACE=eth0\n")
    monkeypatch.setenv("TORCHCOMM_CONFIG", str(file))
    found = software.variables(host_of(tmp_path, environ={}))
    assert found.result == BROKEN
    assert f"CTRAN_SPIN_MICROS='soon' is not an integer of at least 0 (in {file})" in found.reason
    assert f"CTRAN_TCP_INTERFACE (in {file}) means nothing; is CTRAN_TCP_INTERFACES" in found.reason
