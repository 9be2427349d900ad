"""The control groups that a process is in: limits of containers and of batch systems."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from torchcomms.cli.doctor.finding import Host

_UNLIMITED = 1 << 60  # version 1 says "no limit" with a number near 2^63


def _group(host: Host, controller: str) -> str | None:
    """The path of the group in the hierarchy of a controller; "" is version 2."""
    for line in (host.read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controller in controllers.split(","):
            return path
    return None


def _folders(host: Host, controller: str) -> Iterator[str]:
    """From the process's group up to the root: each may limit it."""
    mount = f"/sys/fs/cgroup/{controller}".rstrip("/")
    group = PurePosixPath(_group(host, controller) or "/")
    for folder in (group, *group.parents):
        yield f"{mount}{folder}".rstrip("/")


def memory(host: Host) -> tuple[int, int] | None:
    """Limit and use, in bytes, of the group with the least left; None if nothing limits."""
    tightest: tuple[int, int] | None = None
    files = (
        ("", "memory.max", "memory.current"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    )
    for controller, limit_file, use_file in files:
        for folder in _folders(host, controller):
            limit = host.number(f"{folder}/{limit_file}")  # "max" is no number
            use = host.number(f"{folder}/{use_file}")
            if limit is None or use is None or limit >= _UNLIMITED:
                continue
            if tightest is None or limit - use < tightest[0] - tightest[1]:
                tightest = limit, use
    return tightest


def cores(host: Host) -> float | None:
    """How many cores' worth of time the group gets; None if nothing limits it."""
    found: list[float] = []
    for folder in _folders(host, ""):
        quota, period = [*(host.read(f"{folder}/cpu.max") or "").split(), "", ""][:2]
        if quota.isdigit() and period.isdigit():
            found.append(int(quota) / int(period))
    for folder in _folders(host, "cpu"):
        spent = host.number(f"{folder}/cpu.cfs_quota_us")
        of = host.number(f"{folder}/cpu.cfs_period_us")
        if spent is not None and of and spent > 0:
            found.append(spent / of)
    return min(found, default=None)
