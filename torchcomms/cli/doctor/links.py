"""What links each pair of GPUs: NVLink or PCIe, as NVIDIA's management library (NVML) says."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations

from torchcomms.cli.doctor.finding import Check, Host, Outcome, good, slow
from torchcomms.cli.doctor.gpus import gpu_count, load

_LIBRARY = "libnvidia-ml.so.1"
_MOST_LINKS = 18  # NVML_NVLINK_MAX_LINKS
_SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH
_PCIE = {  # nvmlGpuTopologyLevel_t: what both have above them
    0: "one board",
    10: "PCIe, through one switch",
    20: "PCIe, through several switches",
    30: "PCIe, through a CPU's host bridge",
    40: "PCIe, between host bridges of a NUMA node",
    50: "PCIe, between NUMA nodes",
}


class _PciInfo(ctypes.Structure):
    """nvmlPciInfo_t."""

    _fields_ = (
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pci_device_id", ctypes.c_uint),
        ("pci_subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    )

    @property
    def place(self) -> tuple[int, int, int]:
        return self.domain, self.bus, self.device


class _Unknown(Exception):
    """NVML does not say it."""


@dataclass
class _Gpu:
    handle: ctypes.c_void_p
    place: tuple[int, int, int]
    to_gpus: list[tuple[int, int, int]]  # where each active NVLink goes
    to_switches: int
    inactive: int

    @property
    def active(self) -> int:
        return len(self.to_gpus) + self.to_switches


class _Nvml:
    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def _ask(self, what: str, *arguments: object) -> None:
        function = getattr(self._library, what, None)  # older libraries lack some
        code = None if function is None else function(*arguments)
        if code != 0:
            raise _Unknown(f"{what}() " + ("is missing" if code is None else f"returns {code}"))

    @contextmanager
    def opened(self) -> Iterator[None]:
        self._ask("nvmlInit_v2")
        try:
            yield
        finally:
            self._ask("nvmlShutdown")

    def gpu(self, uuid: str) -> _Gpu:
        handle, info = ctypes.c_void_p(), _PciInfo()
        self._ask("nvmlDeviceGetHandleByUUID", f"GPU-{uuid}".encode(), ctypes.byref(handle))
        self._ask("nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(info))
        found = _Gpu(handle, info.place, [], 0, 0)
        for link in range(_MOST_LINKS):
            try:
                self._follow(found, link)
            except _Unknown:  # there is no such link
                continue
        return found

    def _follow(self, gpu: _Gpu, link: int) -> None:
        is_active, kind, info = ctypes.c_uint(0), ctypes.c_uint(0), _PciInfo()
        self._ask("nvmlDeviceGetNvLinkState", gpu.handle, link, ctypes.byref(is_active))
        if not is_active.value:
            gpu.inactive += 1
            return
        self._ask("nvmlDeviceGetNvLinkRemoteDeviceType", gpu.handle, link, ctypes.byref(kind))
        if kind.value == _SWITCH:
            gpu.to_switches += 1
            return
        self._ask("nvmlDeviceGetNvLinkRemotePciInfo_v2", gpu.handle, link, ctypes.byref(info))
        gpu.to_gpus.append(info.place)

    def between(self, a: _Gpu, b: _Gpu) -> str:
        if direct := a.to_gpus.count(b.place):
            return f"NVLink, {direct} {'link' if direct == 1 else 'links'}"
        if through := min(a.to_switches, b.to_switches):
            return f"NVLink, {through} {'link' if through == 1 else 'links'} through switches"
        level = ctypes.c_uint(0)
        try:
            self._ask(
                "nvmlDeviceGetTopologyCommonAncestor", a.handle, b.handle, ctypes.byref(level)
            )
        except _Unknown:
            return "no NVLink"
        return _PCIE.get(level.value, f"PCIe, level {level.value} of NVML")


def links(_: Host) -> Outcome:
    import torch

    count = gpu_count()
    if count < 2:
        return good("fewer than two GPUs")
    library = load([_LIBRARY])
    if library is None:
        return good(
            f"not known: NVIDIA's management library ({_LIBRARY}) is not here; a container has it "
            "with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        )
    nvml = _Nvml(library)
    try:
        with nvml.opened():
            uuids = [torch.cuda.get_device_properties(index).uuid for index in range(count)]
            gpus = [nvml.gpu(str(uuid)) for uuid in uuids]
            pairs = {
                f"{a}-{b}": nvml.between(gpus[a], gpus[b]) for a, b in combinations(range(count), 2)
            }
    except (_Unknown, AttributeError) as error:
        return good(f"not known: {error} ({_LIBRARY})")
    kinds = dict.fromkeys(pairs.values())
    details = [f"{kind}: {', '.join(p for p in pairs if pairs[p] == kind)}" for kind in kinds]
    most = max(gpu.active for gpu in gpus)
    # Cards without bridges have none; behind switches all have as many.
    is_switched = any(gpu.to_switches for gpu in gpus)
    fewer = [
        f"cuda:{index} has {gpu.active}"
        for index, gpu in enumerate(gpus)
        if gpu.active < most and (is_switched or (gpu.active and gpu.inactive))
    ]
    if fewer:
        return slow(
            f"NVLinks are not active everywhere: {', '.join(fewer)}, others {most}",
            "nvidia-smi nvlink --status says which; nvidia-smi -q and dmesg, why",
            *details,
        )
    if len(kinds) == 1:
        return good(f"{next(iter(kinds))} between any two of {count} GPUs", *details)
    direct = sum(kind.startswith("NVLink") for kind in pairs.values())
    return good(f"NVLink between {direct} of {len(pairs)} pairs of GPUs, else PCIe", *details)


CHECKS = (Check("gpu_links", "GPUs", "NVLink or PCIe between each pair of GPUs", links),)
