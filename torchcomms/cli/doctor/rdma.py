"""RDMA devices: InfiniBand and RoCE."""

from __future__ import annotations

import ctypes

from torchcomms.cli.doctor.finding import Check, Host, Outcome, good, slow

_FOLDER = "/sys/class/infiniband"


def _ports(host: Host) -> list[tuple[str, str, str, int]]:
    """Name with port, state, rate, and how many GIDs there are."""
    found = []
    for device in host.names(_FOLDER):
        for port in host.names(f"{_FOLDER}/{device}/ports"):
            folder = f"{_FOLDER}/{device}/ports/{port}"
            state = (host.read(f"{folder}/state") or "unknown").partition(":")[2].strip()
            gids = [host.read(f"{folder}/gids/{name}") for name in host.names(f"{folder}/gids")]
            some = sum(bool(gid and gid.replace(":", "").strip("0")) for gid in gids)
            layer = host.read(f"{folder}/link_layer") or "link layer not known"
            rate = host.read(f"{folder}/rate") or "rate not known"
            found.append((f"{device}:{port}", state or "unknown", f"{layer}, {rate}", some))
    return found


def can_load(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def devices(host: Host) -> Outcome:
    """The engine itself talks TCP between hosts; NCCL and others use these devices."""
    ports = _ports(host)
    if not ports:
        return good("no RDMA devices: hosts talk over TCP")
    lines = [f"{name}: {state}, {kind}, {gids} GIDs" for name, state, kind, gids in ports]
    active = [name for name, state, _, _ in ports if state == "ACTIVE"]
    down = [name for name, state, _, _ in ports if state != "ACTIVE"]
    if not active:
        return slow(
            f"no port of an RDMA device is active: {', '.join(down)}",
            "ibstat; rdma link show; check cable, switch and subnet manager",
            *lines,
        )
    without = [name for name, _, _, gids in ports if name in active and not gids]
    if without:
        return slow(
            f"{', '.join(without)} without a GID: no connection can be made over it",
            "give its network interface an address, or start the subnet manager",
            *lines,
        )
    if not host.names("/dev/infiniband"):
        return slow(
            "there are RDMA devices, but /dev/infiniband is not there: they cannot be used",
            "docker run --device=/dev/infiniband --ulimit memlock=-1",
            *lines,
        )
    if not can_load("libibverbs.so.1"):
        return slow(
            "there are RDMA devices, but libibverbs.so.1 is not: NCCL goes over TCP",
            "apt-get install libibverbs1 ibverbs-providers",
            *lines,
        )
    if down:
        return slow(f"{', '.join(down)}: not active", "ibstat; rdma link show", *lines)
    return good(f"{len(active)} ports are active; NCCL uses them, ctran talks TCP", *lines)


CHECKS = (Check("rdma", "network", "RDMA devices: ports, GIDs, libibverbs", devices),)
