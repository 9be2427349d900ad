"""The settings that the environment makes."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field

from mscclpp import _runtime

__all__ = ["Env", "adopt", "env"]


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
    timeout_seconds: int = 60
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


def env() -> Env:
    """What the environment says now; kernels and proxies go by what it said at the first one.

    Raises:
        ValueError: MSCCLPP_TIMEOUT is no positive number.
    """
    return Env(**_runtime.environment())


def adopt() -> None:
    """Lets the engine go by the variables of MSCCL++ for which it has its own, where these are not
    set, and warns of those that have no effect. `import mscclpp` calls it."""
    for name, value in _runtime.adopted().items():
        os.environ.setdefault(name, value)
    if idle := _runtime.idle_variables():
        warnings.warn(
            f"{', '.join(idle)}: no effect here; see docs/mscclpp/differences.md",
            RuntimeWarning,
            stacklevel=3,
        )
