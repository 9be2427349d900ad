"""The header for kernels compiles by itself, for GPUs and for the host; windows that are not of
GPUs say what to use instead."""

from __future__ import annotations

import ctypes
import glob
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch

import torchcomms
from torchcomms import CommOptions

ROOT = Path(__file__).parents[3]
KERNELS = ROOT / "tests" / "gpu_ranks" / "device_windows.cu"
HEADERS = sorted((ROOT / "include" / "comms" / "torchcomms" / "device").glob("*.hpp"))


def nvcc() -> str | None:
    return shutil.which("nvcc") or shutil.which("nvcc", path=f"{os.environ.get('CUDA_HOME')}/bin")


def nvrtc() -> str | None:
    places = [
        f"{sysconfig.get_path('purelib')}/nvidia/*/lib",
        f"{os.environ.get('CUDA_HOME')}/lib64",
    ]
    for place in (*places, "/usr/local/cuda/lib64"):
        for found in sorted(glob.glob(f"{place}/libnvrtc.so.1?")):
            return found
    return None


@pytest.mark.parametrize("source", [*HEADERS, KERNELS], ids=lambda path: path.name)
def test_the_hosts_compiler_takes_it(source: Path) -> None:
    command = ["c++", "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
    # As what a program includes: `#pragma once` has no meaning in the main file.
    told = subprocess.run(
        [*command, f"-I{ROOT / 'include'}", "-x", "c++", "-"],
        input=f'#include <mscclpp/gpu.hpp>\n#include "{source}"\n',
        text=True,
        capture_output=True,
    )
    assert told.returncode == 0, told.stderr


@pytest.mark.skipif(nvcc() is None, reason="needs nvcc")
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_nvcc_takes_it(arch: str, tmp_path: Path) -> None:
    command = [str(nvcc()), "-std=c++17", "-Werror=all-warnings", f"-arch={arch}", "--cubin"]
    command += [f"-I{ROOT / 'include'}", str(KERNELS), "-o", str(tmp_path / "kernels.cubin")]
    told = subprocess.run(command, text=True, capture_output=True)
    assert told.returncode == 0, told.stderr


@pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC")
def test_nvrtc_takes_it_without_other_headers() -> None:
    library, program = ctypes.CDLL(str(nvrtc())), ctypes.c_void_p()
    source = KERNELS.read_bytes()
    assert library.nvrtcCreateProgram(ctypes.byref(program), source, b"k.cu", 0, None, None) == 0
    options = [b"--gpu-architecture=sm_90", b"-std=c++17", f"-I{ROOT / 'include'}".encode()]
    given = (ctypes.c_char_p * len(options))(*options)
    result = library.nvrtcCompileProgram(program, len(options), given)
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    assert (result, log.value) == (0, b"")


@pytest.mark.parametrize("backend", ["ctran", "fake"])
def test_windows_of_the_cpu_have_nothing_for_kernels(backend: str) -> None:
    options = CommOptions()
    options.rank, options.size = 0, 1
    comm = torchcomms.new_comm(backend, torch.device("cpu"), options=options)
    tensor = torch.zeros(4)
    window = comm.new_window(tensor)
    for call in (
        window.get_device_window,
        lambda: window.register_local_buffer(tensor),
        lambda: window.deregister_local_buffer(1),
        lambda: window.get_nvlink_address(0),
    ):
        with pytest.raises(torchcomms.CommError, match=r"kernels do not reach .*\n.*use put"):
            call()
    with pytest.raises(torchcomms.CommError, match="multicast is not used"):
        window.get_multimem_address()
    window.tensor_deregister()
    comm.finalize()
