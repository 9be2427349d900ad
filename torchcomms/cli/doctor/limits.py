"""Limits of the process: descriptors and locked memory."""

from __future__ import annotations

import resource

from torchcomms.cli.doctor.finding import Check, Host, Outcome, broken, good, human_bytes, slow

# What 64 ranks of a host and several communicators need (CHANGELOG.md); torch has some of its own.
_PLENTY = 1024
_OWN = 64  # of the interpreter, torch and the store
_PER_RANK = 4


def _shown(limit: int, unit: str = "") -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else f"{limit}{unit}"


def descriptors(host: Host) -> Outcome:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _PLENTY:
        return good(f"{_shown(soft)} descriptors for each process")
    raisable = hard == resource.RLIM_INFINITY or hard >= _PLENTY
    todo = (
        f"ulimit -n {_PLENTY if hard == resource.RLIM_INFINITY else min(hard, 65536)}"
        if raisable
        else f"the hard limit is {hard}: raise 'nofile' in /etc/security/limits.conf, or start the "
        "container with --ulimit nofile=65536"
    )
    needed = _OWN + _PER_RANK * host.ranks
    if soft < needed:
        return broken(
            f"{soft} descriptors for each process; {host.ranks} ranks take {needed}", todo
        )
    return slow(f"{soft} descriptors for each process are few; a rank without any fails", todo)


def locked_memory(host: Host) -> Outcome:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    shown = "unlimited" if soft == resource.RLIM_INFINITY else human_bytes(soft)
    devices = host.names("/sys/class/infiniband")
    if soft == resource.RLIM_INFINITY or not devices:
        why = "" if devices else "; only RDMA devices need more, and there are none"
        return good(f"{shown} may be locked{why}")
    return slow(
        f"only {shown} may be locked, and RDMA devices ({', '.join(devices)}) register memory by "
        "locking it: libraries that use them, such as NCCL, fail or fall back to TCP",
        "ulimit -l unlimited (in containers: --ulimit memlock=-1)",
    )


CHECKS = (
    Check("descriptors", "limits", "ulimit -n", descriptors),
    Check("locked_memory", "limits", "ulimit -l", locked_memory),
)
