#!/usr/bin/env python3
"""Installs torchcomms with a backend, after saying what of the backend's libraries is here.

Nothing of NCCL or RCCL is built: backends ncclx, rccl and rcclx load the library when a
communicator is made, the one that torch has loaded before any other. (For those who know
build_ncclx.sh, build_rccl.sh and build_rcclx.sh from another torchcomms, where they build it.)
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What backends load, the best first, and the variable that says where else than in torch it may be.
LIBRARIES = {
    "ncclx": (("libncclx.so.2", "libnccl.so.2"), "NCCL_HOME"),
    "rccl": (("librccl.so.1", "librccl.so"), "ROCM_HOME"),
    "rcclx": (("librcclx.so.1", "librccl.so.1", "librccl.so"), "ROCM_HOME"),
}
# Where torch's wheels have such libraries, from the folder in which torch lies.
IN_WHEELS = ("torch/lib", "nvidia/nccl/lib")
# They say how libraries are built.
OF_NO_USE = (
    "BUILDDIR",
    "BUILD_DIR",
    "CLEAN_BUILD",
    "NCCL_BUILD_SKIP_DEPS",
    "NVCC_ARCH",
    "RCCLX_INCLUDE",
    "RCCLX_LIB",
    "RCCL_INCLUDE",
    "TORCH_CUDA_ARCH_LIST",
    "USE_SYSTEM_LIBS",
)


def say(text: str) -> None:
    print(text, flush=True)


def torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SystemExit(f"error: {sys.executable} has no torch; install PyTorch first")
    return Path(spec.origin).parent


def kind_of_torch(folder: Path) -> tuple[str, str]:
    """(version, "CUDA", "ROCm" or ""), without the seconds that importing it takes."""
    values: dict[str, str | None] = {}
    exec((folder / "version.py").read_text(), values)
    kind = "CUDA" if values.get("cuda") else "ROCm" if values.get("hip") else ""
    return str(values["__version__"]), kind


def find(backend: str, torch: Path) -> Path | None:
    """The library of that backend, if it is in torch or below the home."""
    names, home = LIBRARIES[backend]
    folders = [torch.parent / folder for folder in IN_WHEELS]
    if os.environ.get(home):
        folders += [Path(os.environ[home]) / folder for folder in ("lib64", "lib")]
    files = (folder / name for name in names for folder in folders)
    return next((file for file in files if file.exists()), None)


def report(backend: str) -> None:
    torch = torch_folder()
    version, kind = kind_of_torch(torch)
    wanted = "CUDA" if backend == "ncclx" else "ROCm"
    say(f"torch {version}: {torch}")
    if kind != wanted:
        say(f"  It is not for {wanted}: backend {backend} is installed, and needs one that is.")
    names, home = LIBRARIES[backend]
    library = find(backend, torch)
    if library is not None:
        say(f"{library.name}: {library}")
    else:
        say(f"{names[0]}: neither in torch nor below {home}; the loader's path is left")
    for name in OF_NO_USE:
        if os.environ.get(name):
            say(f"{name} is set: nothing is built here that it would change")


def install(backend: str) -> int:
    command = [sys.executable, "-m", "pip", "install"]
    if importlib.util.find_spec("pip") is None:
        command = [os.environ.get("UV", "uv"), "pip", "install", "--python", sys.executable]
    command += ["--no-build-isolation", str(ROOT)]
    switch = f"USE_{backend.upper()}"
    say(f"{switch}=ON {shlex.join(command)}")
    return subprocess.run(command, env={**os.environ, switch: "ON"}, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("backend", choices=LIBRARIES)
    parser.add_argument("--check", action="store_true", help="say what is here, install nothing")
    parser.add_argument(
        "--amdgpu_targets",
        metavar="TARGETS",
        help="architectures, as in gfx942; noted: RCCL's own build has chosen its own",
    )
    asked = parser.parse_args()
    report(asked.backend)
    if asked.amdgpu_targets:
        say(f"--amdgpu_targets {asked.amdgpu_targets}: no device code is compiled for AMD's GPUs")
    return 0 if asked.check else install(asked.backend)


if __name__ == "__main__":
    sys.exit(main())
