"""Which library a backend takes, and what it says of one that it cannot use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from harness import Rank, Ranks, standins

import torchcomms
from torchcomms import CommOptions, ReduceOp

Make = Callable[[int], Ranks]


def _says(rank: Rank, backend: str, hints: dict[str, str], env: dict[str, str]) -> str:
    """The version in use, or the error."""
    os.environ.update(env)
    options = CommOptions()
    options.rank, options.size = 0, 1
    cpu = torch.device("cpu")
    try:
        comm = torchcomms.new_comm(backend, cpu, options=options, hints=hints)
    except torchcomms.CommError as error:
        return str(error)
    tensor = torch.ones(4)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait_blocking()
    comm.all_to_all_single(torch.ones(4), tensor, async_op=False).wait_blocking()
    version = comm.get_backend_version()
    comm.finalize()
    return f"{comm.get_backend()} {version}"


@pytest.fixture
def said(fresh_ranks: Make, tmp_path: Path) -> Callable[..., str]:
    """What a process says that takes the stand-ins, with more in its environment."""
    standins.build()

    def ask(backend: str = "nccl", hints: dict[str, str] | None = None, **env: str) -> str:
        given = {**standins.environment(tmp_path), **env}
        return str(fresh_ranks(1).run(_says, backend, hints or {}, given)[0])

    return ask


@pytest.mark.parametrize("backend", ["nccl", "ncclx"])
def test_one_source_serves(said: Callable[..., str], backend: str) -> None:
    assert said(backend) == f"{backend} 2.28.9"


def test_versions(said: Callable[..., str]) -> None:
    assert said(STAND_IN_NCCL_VERSION="21904") == "nccl 2.19.4"
    old = said(STAND_IN_NCCL_VERSION="21704")
    assert "Backend nccl needs NCCL 2.18.0 or newer" in old
    assert "is 2.17.4" in old
    hinted = said(hints={"nvlsCTAs": "1"}, STAND_IN_NCCL_VERSION="22602")
    assert "Hint nvlsCTAs needs NCCL 2.27.0 or newer, but this is 2.26.2" in hinted


def test_no_library(said: Callable[..., str], tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere.so")
    text = said(TORCHCOMMS_NCCL_LIBRARY=missing)
    assert text.startswith("Backend nccl needs the library libnccl.so.2")
    assert "nowhere.so" in text
    assert "TORCHCOMMS_NCCL_LIBRARY" in text
    assert said(CTRAN_CUDA_LIBRARY=missing).startswith("CTRAN_CUDA_LIBRARY:")


@pytest.mark.parametrize(("backend", "home"), [("nccl", "NCCL_HOME"), ("rccl", "ROCM_HOME")])
def test_homes(said: Callable[..., str], tmp_path: Path, backend: str, home: str) -> None:
    """Below the folder that a variable names; what torch has loaded comes first."""
    if backend not in torchcomms.built_backends():
        pytest.skip(f"built without {backend}")
    if backend == "nccl" and "libnccl.so" in Path("/proc/self/maps").read_text():
        pytest.skip("torch has loaded NCCL")
    library = Path(standins.environment(tmp_path)["TORCHCOMMS_NCCL_LIBRARY"])
    (tmp_path / "lib").mkdir()
    names = {"libnccl.so.2": library, "librccl.so.1": library, "libamdhip64.so": standins.driver()}
    for name, target in names.items():
        (tmp_path / "lib" / name).symlink_to(target)
    unset = dict.fromkeys(("TORCHCOMMS_NCCL_LIBRARY", "TORCHCOMMS_RCCL_LIBRARY"), "")
    unset["CTRAN_HIP_LIBRARY"] = ""
    assert said(backend, **unset, **{home: str(tmp_path)}) == f"{backend} 2.28.9"


def test_tensors_of_the_cpu_are_for_others(fresh_ranks: Make) -> None:
    """Without the stand-ins."""
    text = fresh_ranks(1).run(_says, "nccl", {}, {})[0]
    reasons = ("libnccl", "libcuda", "NVIDIA driver", "no support for device 'cpu'")
    assert any(reason in text for reason in reasons), text
