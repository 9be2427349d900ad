"""How the processes of a CommGroup find each other: each tells the others one word, its handle.

Whoever knows the handles can join, and proves it to the others when the engine makes connections.
No object is ever unpickled from what others send.
"""

from __future__ import annotations

import ctypes
import ipaddress
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from mscclpp import _runtime
from mscclpp.environment import env
from mscclpp.errors import CommTimeoutError

__all__ = ["Place", "by_address", "by_environment", "by_mpi", "by_store", "by_torch_group"]

_TRIO = re.compile(r"(?:(?P<interface>[^:\[\]]+):)?(?P<ip>[^:\[\]]+|\[[^\]]+\]):(?P<port>\d+)")

_MOST_RANKS = 1 << 20  # of a communicator of the engine

Exchange = Callable[[str], list[str]]  # own word -> everybody's, by rank


@dataclass(frozen=True)
class Place:
    """Where this process stands, and how it reaches the others."""

    rank: int
    size: int
    exchange: Exchange


def _checked(rank: object, size: object) -> tuple[int, int]:
    for name, value in (("rank", rank), ("size", size)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name} must be an int, not {value!r}")
    assert isinstance(rank, int)
    assert isinstance(size, int)
    if size > _MOST_RANKS:
        raise ValueError(f"{size} ranks: a group has at most {_MOST_RANKS}")
    if size < 1 or not 0 <= rank < size:
        raise ValueError(f"there is no rank {rank} among {size} ranks")
    return rank, size


class _Address(ctypes.Structure):
    """An ifaddrs of <ifaddrs.h>, as far as it matters."""


_Address._fields_ = [
    ("next", ctypes.POINTER(_Address)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


def _interface_addresses() -> Iterator[tuple[str, str]]:
    """Every network interface of this machine with every address of it."""
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Address)()
    if libc.getifaddrs(ctypes.byref(first)) != 0:
        raise OSError(ctypes.get_errno(), "cannot list the network interfaces")
    try:
        entry = first
        while entry:
            one = entry.contents
            if one.address:
                family = ctypes.c_ushort.from_address(one.address).value
                if family == socket.AF_INET:
                    raw = ctypes.string_at(one.address + 4, 4)
                elif family == socket.AF_INET6:
                    raw = ctypes.string_at(one.address + 8, 16)
                else:
                    raw = b""
                if raw:
                    yield os.fsdecode(one.name), str(ipaddress.ip_address(raw))
            entry = one.next
    finally:
        libc.freeifaddrs(first)


def _check_interface(interface: str, address: str, rank: int) -> None:
    """Rank 0 listens at the address, so it has to have it; the others have to have the interface,
    which is called the same there."""
    known = sorted({name for _, name in socket.if_nameindex()})
    if interface not in known:
        raise ValueError(
            f"there is no network interface {interface!r} here; there are {', '.join(known)}"
        )
    own = [found for name, found in _interface_addresses() if name == interface]
    if rank == 0 and address not in own:
        raise ValueError(
            f"network interface {interface!r} does not have the address {address}; "
            f"it has {', '.join(own) or 'none'}"
        )


def by_address(trio: str, rank: object, size: object, timeout: float) -> Place:
    """By INTERFACE:IP:PORT or IP:PORT, where rank 0 listens.

    What the environment variable MSCCLPP_SECRET holds, if it is set, has to be the same on all
    ranks: who does not have it cannot join. Without it, whoever reaches the port in time can.
    """
    if rank is None or size is None:
        raise TypeError("CommGroup(interfaceIpPortTrio=...) needs rank= and size=, too")
    rank, size = _checked(rank, size)
    match = _TRIO.fullmatch(str(trio))
    try:
        if match is None:
            raise ValueError
        address = ipaddress.ip_address(match["ip"].strip("[]"))
    except ValueError:
        raise ValueError(
            f"{trio!r} is no interface, address and port, such as 'eth0:10.0.0.1:50000'"
        ) from None
    interface, number = match["interface"], int(match["port"])
    if not 0 < number < 65536:
        raise ValueError(f"{trio!r} has no port from 1 to 65535")
    if interface:
        _check_interface(interface, str(address), rank)
    where = f"[{address}]:{number}" if address.version == 6 else f"{address}:{number}"
    secret = env().secret

    def exchange(word: str) -> list[str]:
        words = _runtime.gather(where, secret, rank, size, word, timeout)
        return [told.decode("ascii") for told in words]

    return Place(rank, size, exchange)


def by_store(store: Any, rank: object, size: object, timeout: float) -> Place:
    """By a store, such as torch's: an object with `set`, `get`, which waits, and `add`."""
    if rank is None or size is None:
        raise TypeError("CommGroup(store=...) needs rank= and size=, too")
    rank, size = _checked(rank, size)
    if not all(hasattr(store, method) for method in ("set", "get", "add")):
        raise TypeError(
            "store must be one of torch's, or have set, get and add, not "
            f"{store!r}{_instead(store)}"
        )

    def exchange(word: str) -> list[str]:
        # The how-many-th group of this store: each rank counts for itself.
        occasion = store.add(f"mscclpp/groups/{size}/{rank}", 1)
        store.set(f"mscclpp/{size}/{occasion}/{rank}", word)
        words = []
        for other in range(size):
            key = f"mscclpp/{size}/{occasion}/{other}"
            try:
                _await(store, key, timeout)
                words.append(bytes(store.get(key)).decode("ascii"))
            except Exception as error:
                raise CommTimeoutError(
                    f"rank {rank} of {size} waited at the store for rank {other}, which did not "
                    f"come: {error}",
                    [other],
                    "CommGroup",
                ) from error
        return words

    return Place(rank, size, exchange)


def _await(store: Any, key: str, timeout: float) -> None:
    """Waits for a key, so that Ctrl-C ends it, unlike the wait of torch's stores."""
    if not hasattr(store, "check"):
        return
    deadline = time.monotonic() + timeout
    pause = 0.001
    while not store.check([key]):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{timeout} s have passed")
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def _instead(given: Any) -> str:
    """What takes it."""
    if hasattr(given, "_engine_token"):
        return "; CommGroup.from_comm takes communicators of torchcomms"
    if hasattr(given, "bound_device_id"):
        return "; pass it as torch_group"
    return ""


def by_mpi(comm: Any) -> Place:
    """By a communicator of mpi4py: only buffers are sent."""
    if not hasattr(comm, "Get_rank"):
        raise TypeError(f"mpi_comm must be a communicator of mpi4py, not {comm!r}{_instead(comm)}")
    rank, size = _checked(comm.Get_rank(), comm.Get_size())

    def exchange(word: str) -> list[str]:
        own = bytearray(word.encode("ascii"))
        everyone = bytearray(len(own) * size)
        comm.Allgather(own, everyone)  # all handles have the same length
        return _divided(bytes(everyone), size)

    return Place(rank, size, exchange)


def by_torch_group(group: Any) -> Place:
    """By a group of torch.distributed: only tensors are sent."""
    import torch
    import torch.distributed as dist

    if group is dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError("this process is no member of torch_group")
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(
            f"torch_group must be a group of torch.distributed, not {group!r}{_instead(group)}"
        )
    rank, size = _checked(dist.get_rank(group), dist.get_world_size(group))

    def exchange(word: str) -> list[str]:
        on_gpus = dist.get_backend(group) in ("nccl", "xccl")
        own = torch.tensor(list(word.encode("ascii")), dtype=torch.uint8)
        own = own.cuda() if on_gpus else own
        everyone = [torch.empty_like(own) for _ in range(size)]
        dist.all_gather(everyone, own, group=group)
        return [bytes(one.tolist()).decode("ascii") for one in everyone]

    return Place(rank, size, exchange)


def by_environment(timeout: float) -> Place | None:
    """By what launchers leave in the environment: MSCCLPP_MASTER_ADDR and MSCCLPP_MASTER_PORT, with
    RANK and WORLD_SIZE, or whatever `torchcomms.new_comm` understands. None: a world of one."""
    environment = os.environ
    address = environment.get("MSCCLPP_MASTER_ADDR")
    port = environment.get("MSCCLPP_MASTER_PORT")
    if bool(address) != bool(port):
        there, missing = "MSCCLPP_MASTER_ADDR", "MSCCLPP_MASTER_PORT"
        if port:
            there, missing = missing, there
        raise ValueError(f"{there} is set, and {missing} is not: set both, or neither")
    if address and port and "RANK" in environment and "WORLD_SIZE" in environment:
        rank, size = _number("RANK"), _number("WORLD_SIZE")
        return by_address(
            f"{_resolved(address)}:{_number('MSCCLPP_MASTER_PORT')}", rank, size, timeout
        )
    from torchcomms._rendezvous import resolve

    rank, size, store = resolve("mscclpp", None, timedelta(seconds=timeout))
    return None if store is None else by_store(store, rank, size, timeout)


def _number(variable: str) -> int:
    value = os.environ[variable]
    if not value.isdecimal():
        raise ValueError(f"the environment variable {variable} must be a number, but is {value!r}")
    return int(value)


def _resolved(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise ValueError(
            f"MSCCLPP_MASTER_ADDR is {host!r}, which cannot be found ({error}): set it to the host "
            f"of rank 0"
        ) from error


def _divided(text: bytes, size: int) -> list[str]:
    length = len(text) // size
    return [text[i * length : (i + 1) * length].decode("ascii") for i in range(size)]
