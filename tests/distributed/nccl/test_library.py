"""Which library a backend takes, and what it says of one that it cannot use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from harness import standins

PROGRAM = """
import sys, torch, torchcomms
from torchcomms import ReduceOp
try:
    hints = dict(pair.split("=") for pair in sys.argv[2:])
    comm = torchcomms.new_comm(sys.argv[1], torch.device("cpu"), hints=hints)
    print(comm.get_backend(), comm.get_backend_version())
    tensor = torch.ones(4)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait_blocking()
    comm.all_to_all_single(torch.ones(4), tensor, async_op=False).wait_blocking()
    comm.finalize()
except torchcomms.CommError as error:
    print(f"{type(error).__name__}: {error}")
"""


def _said(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str, **env: str) -> str:
    for name in ("CTRAN_CUDA_LIBRARY", "TORCHCOMMS_NCCL_LIBRARY", "STAND_IN_NCCL_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    standins.build()
    for name, value in {**standins.environment(folder), **env}.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("backend", ["nccl", "ncclx"])
def test_one_source_serves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: str) -> None:
    assert _said(monkeypatch, tmp_path, backend) == f"{backend} 2.28.9"


def test_versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = _said(monkeypatch, tmp_path, "nccl", STAND_IN_NCCL_VERSION="21904")
    assert said == "nccl 2.19.4"
    said = _said(monkeypatch, tmp_path, "nccl", STAND_IN_NCCL_VERSION="21704")
    assert "Backend nccl needs NCCL 2.18.0 or newer" in said
    assert "is 2.17.4" in said
    hint = "nvlsCTAs=1"
    said = _said(monkeypatch, tmp_path, "nccl", hint, STAND_IN_NCCL_VERSION="22602")
    assert "Hint nvlsCTAs needs NCCL 2.27.0 or newer, but this is 2.26.2" in said


def test_no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere.so")
    said = _said(monkeypatch, tmp_path, "nccl", TORCHCOMMS_NCCL_LIBRARY=missing)
    assert said.startswith("CommError: Backend nccl needs the library libnccl.so.2")
    assert "nowhere.so" in said
    assert "TORCHCOMMS_NCCL_LIBRARY" in said
    said = _said(monkeypatch, tmp_path, "nccl", CTRAN_CUDA_LIBRARY=missing)
    assert said.startswith("CommError: CTRAN_CUDA_LIBRARY:")


def test_tensors_of_the_cpu_are_for_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the stand-ins."""
    for name in ("CTRAN_CUDA_LIBRARY", "TORCHCOMMS_NCCL_LIBRARY"):
        monkeypatch.delenv(name, raising=False)
    command = [sys.executable, "-c", PROGRAM, "nccl"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert said.startswith("CommError: "), said
    assert "libnccl" in said or "libcuda" in said or "no support for device 'cpu'" in said, said
