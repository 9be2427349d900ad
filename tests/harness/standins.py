"""The stand-ins for a GPU's driver, its compiler and NCCL: compiled when a test needs them.

The driver has the names of AMD's runtime too, and RCCL's interface is NCCL's.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
import sysconfig
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
    "tests/standins/nccl_plugins.h",
    "torchcomms/csrc/backends/nccl/library.hpp",
    "torchcomms/csrc/nccl_plugin/abi.h",
)


@cache
def _folder() -> Path:
    """By what goes into them, so that a change makes new ones."""
    digest = hashlib.blake2b(digest_size=8)
    library = _engine() / "libctran_engine.so"
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
            command += ["-fvisibility=hidden", f"-I{_ROOT}", f"-I{_ROOT}/include"]
            command += [str(_ROOT / source) for source in sources]
            command += ["-o", str(partial), f"-L{_engine()}", f"-Wl,-rpath,{_engine()}"]
            subprocess.run([*command, "-lctran_engine", "-ldl", "-lpthread"], check=True)
            partial.rename(made)


def _build_for_torch(name: str, source: str, *options: str) -> Path:
    """A library compiled against this torch, if it is not there yet."""
    path = _ROOT / "tests/standins" / source
    digest = hashlib.blake2b(path.read_bytes(), digest_size=8)
    digest.update(f"{torch.__file__} {torch.__version__} {sys.version} {options}".encode())
    folder = Path(tempfile.gettempdir()) / f"torchcomms-device-{os.getuid()}-{digest.hexdigest()}"
    folder.mkdir(exist_ok=True)
    made = folder / name
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            root, partial = Path(torch.__file__).parent, made.with_suffix(".partial")
            command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O0", "-g1", "-fPIC", "-shared"]
            command += [f"-I{root}/include", f"-I{root}/include/torch/csrc/api/include"]
            command += [str(path), "-o", str(partial), f"-L{root}/lib", f"-Wl,-rpath,{root}/lib"]
            subprocess.run([*command, *options, "-ltorch_cpu", "-lc10"], check=True)
            partial.rename(made)
    return made


@cache
def build_device() -> Path:
    """The device for torch."""
    return _build_for_torch("libdevice-standin.so", "device.cpp")


@cache
def xccl() -> type:
    """ProcessGroupXCCL on that device, which torch has loaded."""
    device = build_device()
    made = _build_for_torch(
        "xccl_standin.so",
        "xccl.cpp",
        "-fvisibility=hidden",
        f"-I{sysconfig.get_path('include')}",
        str(device),
        f"-Wl,-rpath,{device.parent}",
        "-ltorch_python",
        "-ltorch",
    )
    spec = importlib.util.spec_from_file_location("xccl_standin", made)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    group = module.ProcessGroupXCCL
    assert isinstance(group, type)
    return group


@cache
def verbs() -> Path:
    """The stand-in for libibverbs.so.1, which moves data between processes."""
    folder = _ROOT / "tests/standins/verbs"
    sources = [*sorted(folder.glob("*.cpp")), *folder.glob("*.h"), _ROOT / "ctran/verbs/abi.h"]
    digest = hashlib.blake2b(b"".join(each.read_bytes() for each in sources), digest_size=8)
    made = Path(tempfile.gettempdir()) / f"torchcomms-verbs-{os.getuid()}-{digest.hexdigest()}"
    made.mkdir(exist_ok=True)
    library = made / "libibverbs.so.1"
    with open(made / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            partial = library.with_suffix(".partial")
            command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-g", "-fPIC", "-shared"]
            command += [f"-I{_ROOT}", f"-Wl,--version-script={folder / 'verbs.map'}"]
            command += [str(each) for each in sources if each.suffix == ".cpp"]
            subprocess.run([*command, "-o", str(partial), "-lpthread"], check=True)
            partial.rename(library)
    return library


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
