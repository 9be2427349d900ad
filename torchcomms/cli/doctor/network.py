"""Network interfaces, and names of hosts."""

from __future__ import annotations

import ipaddress
import socket
import threading

from torchcomms.cli.doctor.addresses import Address, local_addresses
from torchcomms.cli.doctor.finding import Check, Host, Outcome, broken, good, slow

_RESOLVE_SECONDS = 3.0
_LEAST_MTU = 1400  # overlay networks of containers take some of 1500


def selects(choice: str, address: Address) -> bool:
    """Whether CTRAN_TCP_INTERFACES lets an address be used (ctran/os/net_address.cpp).

    Raises:
        ValueError: an entry with a slash is no network.
    """
    includes = included = excluded = False
    for entry in filter(None, (part.strip().replace(" ", "") for part in choice.split(","))):
        name = entry.removeprefix("^")
        if "/" in name:
            match = ipaddress.ip_address(address.ip) in ipaddress.ip_network(name, strict=False)
        else:
            match = address.interface == name or (
                name.endswith("*") and address.interface.startswith(name[:-1])
            )
        if entry.startswith("^"):
            excluded |= match
        else:
            includes, included = True, included or match
    return not excluded and (included or not includes)


def usable(addresses: list[Address], host: Host) -> list[Address]:
    """Those that the engine uses between hosts, others before loopback."""
    family = host.environ.get("CTRAN_TCP_FAMILY", "any").lower()
    choice = host.environ.get("CTRAN_TCP_INTERFACES", "")
    chosen = [
        one
        for one in addresses
        if not one.is_link_local
        and (family not in ("ipv4", "ipv6") or family[-1] == str(one.version))
        and selects(choice, one)
    ]
    return sorted(chosen, key=lambda one: one.is_loopback)


def interfaces(host: Host) -> Outcome:
    addresses = local_addresses()
    choice = host.environ.get("CTRAN_TCP_INTERFACES", "")
    try:
        used = usable(addresses, host)
    except ValueError as error:
        return broken(
            f"CTRAN_TCP_INTERFACES={choice}: {error}",
            "export CTRAN_TCP_INTERFACES=eth0 (a name), ib* or a network such as 10.1.0.0/16",
        )
    names = list(dict.fromkeys(one.interface for one in addresses))
    if not used:
        return broken(
            f"CTRAN_TCP_INTERFACES='{choice}' and CTRAN_TCP_FAMILY="
            f"'{host.environ.get('CTRAN_TCP_FAMILY', 'any')}' leave no interface; there are: "
            + (", ".join(names) or "none that is up"),
            "unset CTRAN_TCP_INTERFACES CTRAN_TCP_FAMILY, or name one that there is",
        )
    lines, slow_ones = [], []
    for name in names:
        ips = [one for one in addresses if one.interface == name]
        mtu = host.number(f"/sys/class/net/{name}/mtu")
        speed = host.number(f"/sys/class/net/{name}/speed")
        speed = speed if speed is not None and speed > 0 else None
        taken = any(one.interface == name and not one.is_loopback for one in used)
        shown = f"{speed} Mbit/s" if speed else "speed not known"
        lines.append(
            f"{name}: {', '.join(one.text for one in ips)}; MTU {mtu or 'not known'}; {shown}; "
            + ("used between hosts" if taken else "not used between hosts")
        )
        if taken and speed is not None and speed <= 1000:
            slow_ones.append(f"{name} has {speed} Mbit/s")
        if taken and mtu is not None and mtu < _LEAST_MTU:
            slow_ones.append(f"{name} has an MTU of {mtu}")
    if slow_ones:
        return slow(
            f"{'; '.join(slow_ones)}: slow between hosts",
            "export CTRAN_TCP_INTERFACES=NAME of a faster one, or ip link set NAME mtu 9000 where "
            "the switches allow it (as root)",
            *lines,
        )
    if all(one.is_loopback for one in used):
        return good("only loopback is up: enough for one host", *lines)
    between = dict.fromkeys(one.interface for one in used if not one.is_loopback)
    return good(f"{', '.join(between)} can be used between hosts", *lines)


def _resolve(name: str) -> list[str] | str:
    """Addresses, or why there are none. Bounded: a resolver may take half a minute."""
    answer: list[list[str] | str] = []

    def ask() -> None:
        try:
            found = socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)
            answer.append(list(dict.fromkeys(str(entry[4][0]) for entry in found)))
        except OSError as error:
            answer.append(error.strerror or str(error))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_RESOLVE_SECONDS)
    return answer[0] if answer else f"no answer in {_RESOLVE_SECONDS:.0f} s"


def hostname(host: Host) -> Outcome:
    name = socket.gethostname()
    found = _resolve(name)
    todo = f"add a line 'ADDRESS {name}' to /etc/hosts, with the address that other hosts reach"
    if isinstance(found, str):
        return slow(
            f"this host's name, {name}, does not resolve ({found}): ctran does without, gloo and "
            "torchrun's rendezvous between hosts do not",
            todo,
        )
    outside = [one for one in local_addresses() if not one.is_loopback and not one.is_link_local]
    if outside and all(ipaddress.ip_address(ip.split("%")[0]).is_loopback for ip in found):
        return slow(
            f"this host's name, {name}, resolves to {found[0]}: gloo would tell other hosts that",
            f"{todo}, or export TORCHCOMM_GLOO_INTERFACE={outside[0].interface}",
        )
    return good(f"{name} resolves to {', '.join(found)}")


def master(host: Host) -> Outcome:
    name = host.environ.get("MASTER_ADDR", "")
    if not name:
        return good("MASTER_ADDR is not set: no launcher, or one that does without")
    found = _resolve(name)
    if isinstance(found, str):
        return broken(
            f"MASTER_ADDR={name} does not resolve: {found}",
            "export MASTER_ADDR=ADDRESS of the host of rank 0",
        )
    return good(f"MASTER_ADDR={name} resolves to {', '.join(found)}")


CHECKS = (
    Check("interfaces", "network", "network interfaces: address, MTU, speed", interfaces),
    Check("hostname", "network", "whether this host's name resolves", hostname),
    Check("master", "network", "whether MASTER_ADDR resolves", master),
)
