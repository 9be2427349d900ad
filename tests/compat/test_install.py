"""What must hold with every supported Python and torch, on an installed torchcomms."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points, files, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(tmp_path: Path, *command: str) -> str:
    """Standard output of a command that must succeed, away from the sources."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize(
    "program", ["import torch.distributed, torchcomms", "import torchcomms, torch.distributed"]
)
def test_imports_in_either_order(tmp_path: Path, program: str) -> None:
    said = run(tmp_path, sys.executable, "-c", program + "; print(torchcomms.__version__)")
    assert said.strip() == version("torchcomms")


def test_programs_of_mscclpp_are_written_without_torch(tmp_path: Path) -> None:
    program = "import mscclpp.language, sys; print('torch' in sys.modules)"
    assert run(tmp_path, sys.executable, "-c", program) == "False\n"


def test_headers_of_the_engine_are_the_public_ones() -> None:
    headers = {
        str(file)
        for file in files("torchcomms") or []
        if file.parts[:3] == ("torchcomms", "include", "ctran")
    }
    folders = {str(Path(header).parent) for header in headers}
    assert folders <= {f"torchcomms/include/ctran{part}" for part in ("", "/base", "/bootstrap")}


def test_backends_are_found_by_entry_point() -> None:
    names = {point.name for point in entry_points(group="torchcomms.backends")}
    assert {"ctran", "gloo", "fake"} <= names


def test_example_reduces_across_processes(tmp_path: Path) -> None:
    torchrun = str(Path(sys.executable).parent / "torchrun")
    example = str(ROOT / "examples" / "all_reduce.py")
    said = run(tmp_path, torchrun, "--standalone", "--nproc-per-node", "3", example)
    for rank in range(3):
        for how in ("sync: ", "async:"):
            assert f"[rank {rank}] of 3, {how} had {rank + 1.0}\n" in said
            assert f"[rank {rank}] of 3, {how} sees 6.0\n" in said
