"""Which hosts can open connections to which: finds firewalls.

With plain sockets, before the engine is used: so an error names addresses and ports.
"""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from torchcomms.cli.doctor.addresses import local_addresses
from torchcomms.cli.doctor.finding import Host, Outcome, broken, good
from torchcomms.cli.doctor.network import usable
from torchcomms.cli.doctor.rendezvous import Member, Rendezvous

_GREETING = b"torchcomms doctor\n"
_CONNECT_SECONDS = 3.0
_AT_ONCE = 16


class Listener:
    """Greets everybody who connects, at a port that the system chooses, as the engine does."""

    def __init__(self) -> None:
        if socket.has_dualstack_ipv6():
            self._socket = socket.create_server(
                ("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128
            )
        else:
            self._socket = socket.create_server(("", 0), backlog=128)
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._greet, daemon=True).start()

    def _greet(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:
                return  # closed
            with suppress(OSError), caller:
                caller.sendall(_GREETING)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._socket.close()


def try_connect(ip: str, port: int, seconds: float = _CONNECT_SECONDS) -> str:
    """Why no connection can be made; empty if one can."""
    try:
        with socket.create_connection((ip, port), timeout=seconds) as connection:
            got = b""
            while len(got) < len(_GREETING):
                part = connection.recv(len(_GREETING) - len(got))
                if not part:
                    break
                got += part
    except TimeoutError:
        return f"no answer in {seconds:.0f} s"
    except OSError as error:
        return error.strerror or str(error)
    return "" if got == _GREETING else "somebody else answers there"


@dataclass(frozen=True)
class Hole:
    """A connection that cannot be made."""

    source: int
    target: int
    tried: str
    """Addresses with ports, and what happened."""


def _holes_to(source: int, target: int, ips: list[str], port: int) -> Hole | None:
    failures = []
    for ip in ips:
        why = try_connect(ip, port)
        if not why:
            return None
        shown = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
        failures.append(f"{shown} {why}")
    return Hole(source, target, ", ".join(failures) or "has no address that can be reached")


def find_holes(
    rendezvous: Rendezvous, members: dict[int, Member], chosen: list[int], host: Host
) -> list[Hole]:
    """Everybody of `chosen` calls everybody else who is on another host. Collective."""
    listener = Listener()
    addresses = []
    with suppress(ValueError):  # of CTRAN_TCP_INTERFACES, which the check of interfaces reports
        addresses = usable(local_addresses(), host)
    mine = {
        "port": listener.port,
        "ips": [[one.ip, one.is_loopback] for one in addresses],
    }
    try:
        told = rendezvous.share("reach/listen", mine)
        holes: list[Hole] = []
        if rendezvous.rank in chosen:
            me = members[rendezvous.rank]

            def call(target: int) -> Hole | None:
                other = members[target]
                same = other.machine == me.machine
                ips = [ip for ip, loopback in told[target]["ips"] if same or not loopback]
                return _holes_to(me.rank, target, ips, told[target]["port"])

            targets = [
                rank for rank in chosen if rank in told and members[rank].identity != me.identity
            ]
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                holes = [hole for hole in pool.map(call, targets) if hole is not None]
        found = rendezvous.share("reach/found", [[h.source, h.target, h.tried] for h in holes])
    finally:
        listener.close()
    return [Hole(*one) for rank in sorted(found) for one in found[rank]]


def outcome(holes: list[Hole], members: dict[int, Member], chosen: list[int]) -> Outcome:
    hosts = len({members[rank].identity for rank in chosen})
    if not holes:
        said = "one host: no connections are needed" if hosts < 2 else f"all of {hosts} hosts can"
        return good(said if hosts < 2 else f"{said} open connections to each other")
    lines = [
        f"{members[hole.source].name} (rank {hole.source}) to {members[hole.target].name} "
        f"(rank {hole.target}): {hole.tried}"
        for hole in holes
    ]
    return broken(
        f"{len(holes)} connections between hosts cannot be made",
        "let the firewall pass TCP between these hosts, ports of net.ipv4.ip_local_port_range "
        "(sysctl), or name a network that reaches them: export CTRAN_TCP_INTERFACES=...",
        *lines,
    )
