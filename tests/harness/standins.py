"""The stand-ins for a GPU's driver, its compiler and NCCL: compiled when a test needs them.

The driver has the names of AMD's runtime too, and RCCL's interface is NCCL's.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch

import torchcomms

_ROOT = Path(__file__).parents[2]
_SOURCES = {
    "libcuda-standin.so": ("tests/standins/cuda.cpp", "tests/standins/cuda_absent.cpp"),
    "libnvrtc-standin.so": ("tests/standins/nvrtc.cpp",),
    "libnccl-standin.so": ("tests/standins/nccl.cpp",),
}
_HEADERS = (
    "ctran/gpu/device/block.cuh",
    "ctran/gpu/driver.h",
    "torchcomms/csrc/backends/nccl/library.hpp",
)


@cache
def _folder() -> Path:
    """By what goes into them, so that a change makes new ones."""
    digest = hashlib.blake2b(digest_size=8)
    library = _engine() / "libctran.so"
    for file in (*_HEADERS, *(source for sources in _SOURCES.values() for source in sources)):
        digest.update((_ROOT / file).read_bytes())
    digest.update(str((library.resolve(), library.stat().st_mtime_ns)).encode())
    return Path(tempfile.gettempdir()) / f"torchcomms-standins-{os.getuid()}-{digest.hexdigest()}"


def _engine() -> Path:
    return Path(torchcomms._comms.__file__).parent / "lib"


def build() -> None:
    """Compiles what is not there yet; a few seconds."""
    _folder().mkdir(exist_ok=True)
    with open(_folder() / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for library, sources in _SOURCES.items():
            made = _folder() / library
            if made.exists():
                continue
            partial = made.with_suffix(".partial")
            command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-g", "-fPIC", "-shared"]
            command += ["-fvisibility=hidden", f"-I{_ROOT}", *(str(_ROOT / s) for s in sources)]
            command += ["-o", str(partial), f"-L{_engine()}", f"-Wl,-rpath,{_engine()}"]
            subprocess.run([*command, "-lctran", "-ldl", "-lpthread"], check=True)
            partial.rename(made)


@cache
def build_device() -> Path:
    """The device for torch, compiled against this torch if it is not there yet."""
    source = _ROOT / "tests/standins/device.cpp"
    digest = hashlib.blake2b(source.read_bytes(), digest_size=8)
    digest.update(f"{torch.__file__} {torch.__version__}".encode())
    folder = Path(tempfile.gettempdir()) / f"torchcomms-device-{os.getuid()}-{digest.hexdigest()}"
    folder.mkdir(exist_ok=True)
    made = folder / "libdevice-standin.so"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            root, partial = Path(torch.__file__).parent, made.with_suffix(".partial")
            command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-g", "-fPIC", "-shared"]
            command += [f"-I{root}/include", f"-I{root}/include/torch/csrc/api/include"]
            command += [str(source), "-o", str(partial), f"-L{root}/lib", f"-Wl,-rpath,{root}/lib"]
            subprocess.run([*command, "-ltorch_cpu", "-lc10"], check=True)
            partial.rename(made)
    return made


def driver() -> Path:
    return _folder() / "libcuda-standin.so"


def environment(directory: Path) -> dict[str, str]:
    """Makes a process take the stand-ins; ranks meet in `directory`."""
    return {
        "CTRAN_CUDA_LIBRARY": str(driver()),
        "CTRAN_NVRTC_LIBRARY": str(_folder() / "libnvrtc-standin.so"),
        "CTRAN_HIP_LIBRARY": str(driver()),
        "TORCHCOMMS_NCCL_LIBRARY": str(_folder() / "libnccl-standin.so"),
        "TORCHCOMMS_RCCL_LIBRARY": str(_folder() / "libnccl-standin.so"),
        "STAND_IN_NCCL_DIRECTORY": str(directory),
    }


def use(directory: Path, gpu: int) -> None:
    """Makes this process take the stand-ins, and that GPU of theirs."""
    build()
    os.environ.update(environment(directory), STAND_IN_GPU=str(gpu))
