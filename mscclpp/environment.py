"""The settings that the environment makes."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Env", "adopt", "env"]

_TIMEOUT = "60"
_LEVELS = {
    "VERSION": "warn", "NONE": "error", "ERROR": "error", "WARN": "warn", "INFO": "info",
    "DEBUG": "debug", "TRACE": "trace", "ABORT": "trace",
}  # fmt: skip
_FAMILIES = {"AF_INET": "ipv4", "AF_INET6": "ipv6"}
_WITHOUT_EFFECT = (
    "DEBUG_SUBSYS",
    "LOG_SUBSYS",
    "IBV_MODE",
    "NPKIT_DUMP_DIR",
    "CUDAIPC_USE_DEFAULT_STREAM",
    "NCCL_LIB_PATH",
    "FORCE_NCCL_FALLBACK_OPERATION",
    "NCCL_SYMMETRIC_MEMORY",
)


@dataclass(frozen=True)
class Env:
    """Of this process: what MSCCLPP_HOSTID and so on say. docs/mscclpp/differences.md has which of
    them have an effect.

    Attributes:
        hostid: makes this host another one.
        comm_id: "address:port" at which programs in C++ meet.
        secret: who joins at a port has to know it.
        cache_dir: of compiled kernels and of proofs; ~/.cache/mscclpp.
        timeout_seconds: MSCCLPP_TIMEOUT: of a wait in a kernel or on a proxy; 60.
    """

    hostid: str = ""
    comm_id: str = ""
    secret: str = field(default="", repr=False)
    cache_dir: str = ""
    timeout_seconds: int = int(_TIMEOUT)
    debug: str = ""
    debug_subsys: str = ""
    debug_file: str = ""
    log_level: str = ""
    log_subsys: str = ""
    log_file: str = ""
    hca_devices: str = ""
    ibv_so: str = ""
    ibv_mode: str = ""
    socket_family: str = ""
    socket_ifname: str = ""
    npkit_dump_dir: str = ""
    cuda_ipc_use_default_stream: bool = False
    nccl_shared_lib_path: str = ""
    force_nccl_fallback_operation: str = ""
    nccl_symmetric_memory: bool = False
    force_disable_nvls: bool = False
    force_disable_gdr: bool = False
    ib_gid_index: str = ""


def _text(name: str) -> str:
    return os.environ.get(f"MSCCLPP_{name}", "")


def _flag(name: str) -> bool:
    return _text(name).lower() not in ("", "0", "false")


def env() -> Env:
    """What the environment says now; kernels and proxies go by what it said at the first one.

    Raises:
        ValueError: MSCCLPP_TIMEOUT is no positive number.
    """
    timeout = _text("TIMEOUT") or _TIMEOUT
    if not (timeout.isascii() and timeout.isdecimal() and 0 < int(timeout) < 1 << 31):
        raise ValueError(f"MSCCLPP_TIMEOUT={timeout} is no positive number")
    return Env(
        hostid=_text("HOSTID"),
        comm_id=_text("COMM_ID"),
        secret=_text("SECRET"),
        cache_dir=_text("CACHE_DIR") or str(Path.home() / ".cache" / "mscclpp"),
        timeout_seconds=int(timeout),
        debug=_text("DEBUG"),
        debug_subsys=_text("DEBUG_SUBSYS"),
        debug_file=_text("DEBUG_FILE"),
        log_level=_text("LOG_LEVEL"),
        log_subsys=_text("LOG_SUBSYS"),
        log_file=_text("LOG_FILE"),
        hca_devices=_text("HCA_DEVICES"),
        ibv_so=_text("IBV_SO"),
        ibv_mode=_text("IBV_MODE"),
        socket_family=_text("SOCKET_FAMILY"),
        socket_ifname=_text("SOCKET_IFNAME"),
        npkit_dump_dir=_text("NPKIT_DUMP_DIR"),
        cuda_ipc_use_default_stream=_flag("CUDAIPC_USE_DEFAULT_STREAM"),
        nccl_shared_lib_path=_text("NCCL_LIB_PATH"),
        force_nccl_fallback_operation=_text("FORCE_NCCL_FALLBACK_OPERATION"),
        nccl_symmetric_memory=_flag("NCCL_SYMMETRIC_MEMORY"),
        force_disable_nvls=_flag("FORCE_DISABLE_NVLS"),
        force_disable_gdr=_flag("FORCE_DISABLE_GDR"),
        ib_gid_index=_text("IB_GID_INDEX"),
    )


def adopt() -> None:
    """Lets the engine go by the variables of MSCCL++ for which it has its own, where these are not
    set, and warns of those that have no effect. `import mscclpp` calls it."""
    level = _LEVELS.get((_text("LOG_LEVEL") or _text("DEBUG")).upper(), "")
    adopted = {
        "TORCHCOMM_LOG": "" if "CTRAN_LOG" in os.environ else level,
        "TORCHCOMM_LOG_TO": _text("LOG_FILE") or _text("DEBUG_FILE"),
        "CTRAN_IB_HCA": _text("HCA_DEVICES") and "=" + _text("HCA_DEVICES"),
        "CTRAN_VERBS_LIBRARY": _text("IBV_SO"),
        "CTRAN_TCP_FAMILY": _FAMILIES.get(_text("SOCKET_FAMILY"), ""),
        "CTRAN_TCP_INTERFACES": _interfaces(_text("SOCKET_IFNAME")),
        "CTRAN_IB_GID_INDEX": _text("IB_GID_INDEX"),
        "CTRAN_GPU_DIRECT": "off" if _flag("FORCE_DISABLE_GDR") else "",
    }
    for name, value in adopted.items():
        if value:
            os.environ.setdefault(name, value)
    idle = [f"MSCCLPP_{name}" for name in _WITHOUT_EFFECT if _text(name)]
    if idle:
        warnings.warn(
            f"{', '.join(idle)}: no effect here; see docs/mscclpp/differences.md",
            RuntimeWarning,
            stacklevel=3,
        )


def _interfaces(names: str) -> str:
    """Of MSCCL++: the beginnings of names, behind "=" whole ones, behind "^" all but these."""
    excluded = names.startswith("^")
    whole = names.lstrip("^").startswith("=")
    given = [name for name in names.lstrip("^=").split(",") if name]
    listed = ",".join(name if whole else f"{name}*" for name in given)
    return f"^{listed}" if excluded and listed else listed
