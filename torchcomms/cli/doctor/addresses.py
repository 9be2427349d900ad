"""The addresses of this host's network interfaces, from getifaddrs(3)."""

from __future__ import annotations

import ctypes
import os
import socket
from dataclasses import dataclass

_IFF_UP = 1


@dataclass(frozen=True)
class Address:
    interface: str
    ip: str
    prefix: int

    @property
    def version(self) -> int:
        return 6 if ":" in self.ip else 4

    @property
    def is_loopback(self) -> bool:
        return self.ip == "::1" or self.ip.startswith("127.")

    @property
    def is_link_local(self) -> bool:
        """Of IPv6: such an address needs an interface beside it, and the engine leaves it out."""
        return self.ip.lower().startswith(("fe8", "fe9", "fea", "feb"))

    @property
    def text(self) -> str:
        return f"{self.ip}/{self.prefix}"


class _Entry(ctypes.Structure):
    """struct ifaddrs, as far as it is used."""


_Entry._fields_ = [
    ("next", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
    ("mask", ctypes.c_void_p),
]


def _ip(pointer: int, family: int) -> bytes:
    """The address in a sockaddr_in (4 bytes in) or a sockaddr_in6 (8 bytes in)."""
    if family == socket.AF_INET:
        return ctypes.string_at(pointer + 4, 4)
    return ctypes.string_at(pointer + 8, 16)


def local_addresses() -> list[Address]:
    """Of the interfaces that are up.

    Raises:
        OSError: the system does not say.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Entry)()
    if libc.getifaddrs(ctypes.byref(first)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    found: list[Address] = []
    try:
        entry = first
        while entry:
            one = entry.contents
            entry = one.next
            if not one.address or not one.flags & _IFF_UP:
                continue
            family = ctypes.c_ushort.from_address(one.address).value
            if family not in (socket.AF_INET, socket.AF_INET6):
                continue
            ip = socket.inet_ntop(family, _ip(one.address, family))
            bits = _ip(one.mask, family) if one.mask else b""
            prefix = sum(byte.bit_count() for byte in bits)
            found.append(Address(one.name.decode(), ip, prefix))
    finally:
        libc.freeifaddrs(first)
    return found
