"""RDMA devices: InfiniBand and RoCE."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from torchcomms.cli.doctor.finding import Check, Host, Outcome, broken, good, slow

_FOLDER = "/sys/class/infiniband"
_LIBRARY = "libibverbs.so.1"
_OFF = ("0", "false", "no", "off", "n")  # what the engine takes for that (ctran/base/config.cpp)


@dataclass(frozen=True)
class _Port:
    device: str
    number: str
    state: str
    kind: str
    """Link layer and rate."""
    gids: int

    @property
    def name(self) -> str:
        return f"{self.device}:{self.number}"


def _ports(host: Host) -> list[_Port]:
    found = []
    for device in host.names(_FOLDER):
        for port in host.names(f"{_FOLDER}/{device}/ports"):
            folder = f"{_FOLDER}/{device}/ports/{port}"
            state = (host.read(f"{folder}/state") or "unknown").partition(":")[2].strip()
            gids = [host.read(f"{folder}/gids/{name}") for name in host.names(f"{folder}/gids")]
            some = sum(bool(gid and gid.replace(":", "").strip("0")) for gid in gids)
            layer = host.read(f"{folder}/link_layer") or "link layer not known"
            rate = host.read(f"{folder}/rate") or "rate not known"
            found.append(_Port(device, port, state or "unknown", f"{layer}, {rate}", some))
    return found


def can_load(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def allows(choice: str, device: str, port: str) -> bool:
    """Whether CTRAN_IB_HCA lets a port be used (HcaFilter of ctran/transport/ib/settings.cpp).

    Raises:
        ValueError: what is behind a colon is no port number.
    """
    excludes = choice.startswith("^")
    words = choice.removeprefix("^")
    exact = words.startswith("=")
    named = False
    entries = [one for one in words.removeprefix("=").split(",") if one]
    for entry in entries:
        name, colon, number = entry.partition(":")
        if colon and not (number.isascii() and number.isdecimal() and int(number) > 0):
            raise ValueError(f"'{entry}' has no port number after the colon")
        fits = device == name if exact else device.startswith(name)
        named |= fits and (not colon or int(number) == int(port))
    return not entries or named != excludes


def devices(host: Host) -> Outcome:
    """ctran and NCCL use these devices between hosts; without them both talk TCP."""
    ports = _ports(host)
    if not ports:
        return good("no RDMA devices: hosts talk over TCP")
    choice = host.environ.get("CTRAN_IB_HCA", "")
    try:
        used = [one for one in ports if allows(choice, one.device, one.number)]
    except ValueError as error:
        return broken(
            f"CTRAN_IB_HCA={choice}: {error}",
            "export CTRAN_IB_HCA=mlx5 (names that begin so), =mlx5_0:1 (a port) or ^mlx5_3",
        )
    lines = [
        f"{one.name}: {one.state}, {one.kind}, {one.gids} GIDs"
        + ("" if one in used else "; not used by ctran, as CTRAN_IB_HCA says")
        for one in ports
    ]
    if not used:
        return slow(
            f"CTRAN_IB_HCA={choice} leaves no port: ctran talks TCP between hosts",
            f"unset CTRAN_IB_HCA, or name one that there is: {', '.join(p.name for p in ports)}",
            *lines,
        )
    active = [one for one in used if one.state == "ACTIVE"]
    down = ", ".join(one.name for one in used if one.state != "ACTIVE")
    if not active:
        return slow(
            f"no port of an RDMA device is active: {down}; hosts talk over TCP",
            "ibstat; rdma link show; check cable, switch and subnet manager",
            *lines,
        )
    without = ", ".join(one.name for one in active if not one.gids)
    if without:
        return slow(
            f"{without} without a GID: no connection can be made over it",
            "give its network interface an address, or start the subnet manager",
            *lines,
        )
    if not host.names("/dev/infiniband"):
        return slow(
            "there are RDMA devices, but /dev/infiniband is not there: hosts talk over TCP",
            "docker run --device=/dev/infiniband --ulimit memlock=-1",
            *lines,
        )
    library = host.environ.get("CTRAN_VERBS_LIBRARY", "")
    if library and not can_load(library):
        return slow(
            f"CTRAN_VERBS_LIBRARY={library} cannot be loaded: ctran talks TCP between hosts",
            "unset CTRAN_VERBS_LIBRARY",
            *lines,
        )
    if not library and not can_load(_LIBRARY):
        return slow(
            f"there are RDMA devices, but {_LIBRARY} is not: hosts talk over TCP",
            "apt-get install libibverbs1 ibverbs-providers",
            *lines,
        )
    if down:
        return slow(f"{down}: not active", "ibstat; rdma link show", *lines)
    ready = f"{len(active)} {'port is' if len(active) == 1 else 'ports are'} active"
    if host.environ.get("CTRAN_IB", "").lower() in _OFF:
        return good(f"{ready}; NCCL uses RDMA, ctran talks TCP, as CTRAN_IB is off", *lines)
    return good(f"{ready}; ctran and NCCL use RDMA between hosts", *lines)


CHECKS = (Check("rdma", "network", "RDMA devices: ports, GIDs, libibverbs", devices),)
