"""The settings that the environment makes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Env", "env"]

_TIMEOUT = "60"


@dataclass(frozen=True)
class Env:
    """Of this process.

    Attributes:
        hostid: MSCCLPP_HOSTID: makes this host another one.
        comm_id: MSCCLPP_COMM_ID: "address:port" at which programs in C++ meet.
        secret: MSCCLPP_SECRET: who joins at a port has to know it.
        cache_dir: MSCCLPP_CACHE_DIR: of compiled kernels and of proofs; ~/.cache/mscclpp.
        timeout_seconds: MSCCLPP_TIMEOUT: of a wait in a kernel or on a proxy; 60.
    """

    hostid: str
    comm_id: str
    secret: str = field(repr=False)
    cache_dir: str
    timeout_seconds: int


def env() -> Env:
    """What the environment says now; kernels and proxies go by what it said at the first one.

    Raises:
        ValueError: MSCCLPP_TIMEOUT is no positive number.
    """

    def text(name: str) -> str:
        return os.environ.get(f"MSCCLPP_{name}", "")

    timeout = text("TIMEOUT") or _TIMEOUT
    if not (timeout.isascii() and timeout.isdecimal() and 0 < int(timeout) < 1 << 31):
        raise ValueError(f"MSCCLPP_TIMEOUT={timeout} is no positive number")
    return Env(
        hostid=text("HOSTID"),
        comm_id=text("COMM_ID"),
        secret=text("SECRET"),
        cache_dir=text("CACHE_DIR") or str(Path.home() / ".cache" / "mscclpp"),
        timeout_seconds=int(timeout),
    )
