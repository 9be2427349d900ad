"""The scripts of the root that install with a backend, and the build backend."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
BACKENDS = ("ncclx", "rccl", "rcclx")


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHON": sys.executable, **environment},
        timeout=200,
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_scripts_say_what_is_here(backend: str, tmp_path: Path) -> None:
    library = tmp_path / "lib" / ("libncclx.so.2" if backend == "ncclx" else "librccl.so.1")
    library.parent.mkdir()
    library.touch()
    homes = dict.fromkeys(("NCCL_HOME", "ROCM_HOME"), str(tmp_path))
    targets = ["--amdgpu_targets", "gfx942"] if backend == "rcclx" else []
    of_no_use = dict.fromkeys(("CLEAN_BUILD", "USE_SYSTEM_LIBS"), "1")
    done = run(ROOT / f"build_{backend}.sh", "--check", *targets, **of_no_use, **homes)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"torch {torch.__version__}" in done.stdout
    assert str(library) in done.stdout
    for name in of_no_use:
        assert f"{name} is set: nothing is built here" in done.stdout
    assert ("gfx942" in done.stdout) == bool(targets)
    assert "pip install" not in done.stdout


@pytest.mark.parametrize("backend", BACKENDS)
def test_scripts_have_help(backend: str) -> None:
    done = run(ROOT / f"build_{backend}.sh", "--help")
    assert done.returncode == 0
    assert "--check" in done.stdout


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with pip and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def test_scripts_need_torch(bare: Path) -> None:
    done = run(ROOT / "build_ncclx.sh", PYTHON=str(bare))
    assert done.returncode == 1
    assert "has no torch; install PyTorch first" in done.stderr


def test_build_backend_has_the_hooks() -> None:
    program = "import torchcomms_build as b; print(b.build_wheel, b.build_editable, b.build_sdist)"
    done = run(sys.executable, "-c", program, PYTHONPATH=str(ROOT / "tools" / "pip"))
    assert done.returncode == 0, done.stderr


def test_build_backend_says_what_it_lacks(bare: Path, tmp_path: Path) -> None:
    """Where nothing can be fetched."""
    program = "import torchcomms_build"
    offline = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    done = run(bare, "-c", program, PYTHONPATH=str(ROOT / "tools" / "pip"), **offline)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("pip install -r requirements.txt")
