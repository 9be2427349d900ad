"""GPUs, their driver, and the libraries that backends for them load."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

from torchcomms.cli.doctor.finding import Check, Host, Outcome, broken, good, human_bytes, slow


def load(names: list[str]) -> ctypes.CDLL | None:
    """The first that can be loaded."""
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def has_driver(host: Host) -> bool:
    """Whether the kernel has NVIDIA's driver."""
    return host.read("/proc/driver/nvidia/version") is not None


def gpu_count() -> int:
    """That torch sees."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def driver(host: Host) -> Outcome:
    import torch

    named = host.environ.get("CTRAN_CUDA_LIBRARY", "")
    library = named or "libcuda.so.1"
    found = load([library])
    if named and found is None:
        return broken(f"CTRAN_CUDA_LIBRARY={named} cannot be loaded", "unset CTRAN_CUDA_LIBRARY")
    if not has_driver(host) and found is None:
        return good("no NVIDIA driver: CPUs only")
    if found is None:
        return broken(
            f"the kernel has NVIDIA's driver, but {library} is not here",
            "docker run --gpus all, with the NVIDIA container toolkit",
        )
    version = ctypes.c_int(0)
    code = found.cuInit(0) or found.cuDriverGetVersion(ctypes.byref(version))
    if code != 0:
        return broken(
            f"{library} is here, but cuInit() returns {code}",
            "check CUDA_VISIBLE_DEVICES, that /dev/nvidia* are in the container, and dmesg",
        )
    supports = f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    if torch.version.cuda is None:
        return slow(
            f"there is a driver (for {supports}), but torch {torch.__version__} is built for CPUs",
            "pip install a torch for CUDA (https://pytorch.org), then torchcomms again",
        )
    return good(f"the driver supports {supports}; torch is built for CUDA {torch.version.cuda}")


def devices(host: Host) -> Outcome:
    import torch

    count = gpu_count()
    if count == 0:
        if has_driver(host) and torch.version.cuda is not None:
            return broken(
                "there is a driver, but torch sees no GPU",
                "python -c 'import torch; torch.cuda.init()' says why; check CUDA_VISIBLE_DEVICES",
            )
        return good("torch sees no GPU")
    lines = []
    for index in range(count):
        kind = torch.cuda.get_device_properties(index)
        lines.append(
            f"cuda:{index}: {kind.name}, {human_bytes(kind.total_memory)}, "
            f"compute capability {kind.major}.{kind.minor}"
        )
    if host.ranks > count:
        return slow(
            f"{host.ranks} ranks for {count} GPUs: ranks that share one take turns, and NCCL "
            "refuses them",
            f"start at most {count} ranks on this host",
            *lines,
        )
    return good(f"{count} GPUs", *lines)


def peer_access(host: Host) -> Outcome:
    import torch

    count = gpu_count()
    if count < 2:
        return good("fewer than two GPUs")
    apart = [
        f"{a}-{b}"
        for a in range(count)
        for b in range(a + 1, count)
        if not torch.cuda.can_device_access_peer(a, b)
    ]
    if apart:
        return slow(
            f"GPUs that cannot reach each other's memory: {', '.join(apart)}; ctran goes through "
            "the host's",
            "nvidia-smi topo -p2p rw says why; disable ACS in the BIOS, or IOMMU in containers",
        )
    return good(f"all of {count} GPUs reach each other's memory")


def _packages() -> Iterator[Path]:
    for entry in sys.path:
        folder = Path(entry) / "nvidia"
        if folder.is_dir():
            yield folder


def _candidates(
    host: Host, names: list[str], named: str, wheels: list[str], home: str
) -> list[str]:
    """Where the engine looks: what the variable names, else wheels, its home, the system."""
    if path := host.environ.get(named):
        return [path]
    folders = [package / wheel for package in _packages() for wheel in wheels]
    if root := host.environ.get(home):
        folders += [Path(root) / "lib64", Path(root) / "lib"]
    return [str(folder / name) for folder in folders for name in names] + names


def nvrtc(host: Host) -> Outcome:
    variable = "CTRAN_NVRTC_LIBRARY"
    names = ["libnvrtc.so.13", "libnvrtc.so.12"]
    wheels = ["cu13/lib", "cuda_nvrtc/lib"]
    found = load(_candidates(host, names, variable, wheels, "CUDA_HOME"))
    if found is None:
        if host.environ.get(variable):
            return broken(
                f"{variable}={host.environ[variable]} cannot be loaded", f"unset {variable}"
            )
        if gpu_count() == 0:
            return good("not found; only GPUs need it")
        return broken(
            "the CUDA run-time compiler (libnvrtc) is not found: ctran cannot use the GPUs",
            "pip install nvidia-cuda-nvrtc, or export CUDA_HOME=... or CTRAN_NVRTC_LIBRARY=...",
        )
    major, minor = ctypes.c_int(0), ctypes.c_int(0)
    found.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return good(f"NVRTC {major.value}.{minor.value}", found._name)


def nccl(host: Host) -> Outcome:
    variable = "TORCHCOMMS_NCCL_LIBRARY"
    names = ["libnccl.so.2", "libnccl.so"]
    found = load(_candidates(host, names, variable, ["nccl/lib"], "NCCL_HOME"))
    if found is None:
        if host.environ.get(variable):
            return broken(
                f"{variable}={host.environ[variable]} cannot be loaded", f"unset {variable}"
            )
        if gpu_count() == 0:
            return good("not found; only GPUs need it")
        return slow(
            "NCCL is not found: backends nccl and ncclx are missing, ctran works",
            "pip install nvidia-nccl-cu13 (or cu12), or export NCCL_HOME=...",
        )
    version = ctypes.c_int(0)
    found.ncclGetVersion(ctypes.byref(version))
    code = version.value
    return good(f"NCCL {code // 10000}.{code // 100 % 100}.{code % 100}", found._name)


CHECKS = (
    Check("gpu_driver", "GPUs", "NVIDIA's driver, and torch's build", driver),
    Check("gpus", "GPUs", "GPUs that torch sees, against the ranks", devices),
    Check("peer_access", "GPUs", "whether GPUs reach each other's memory", peer_access),
    Check("nvrtc", "GPUs", "the compiler of ctran's kernels", nvrtc),
    Check("nccl", "GPUs", "NCCL", nccl),
)
