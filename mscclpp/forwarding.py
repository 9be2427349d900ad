"""What programs ask of `CommGroup.communicator`, and the communicator of C++ beside it does."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mscclpp import _runtime
from mscclpp.native_communicator import NativeCommunicator, native_of
from mscclpp.types import DataType, ReduceOp

if TYPE_CHECKING:
    from mscclpp._runtime import Communicator
    from mscclpp.channels import Connection

__all__ = ["Bootstrap"]


class Bootstrap:
    """How the ranks of a communicator reach each other: `communicator.bootstrap()`."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator

    def get_rank(self) -> int:
        """Of this process."""
        return self._communicator.rank

    def get_n_ranks(self) -> int:
        """How many there are."""
        return self._communicator.size

    def get_n_ranks_per_node(self) -> int:
        """How many of them are on this rank's host."""
        hosts = self._communicator.hosts()
        return hosts.count(hosts[self._communicator.rank])

    def get_n_ranks_per_ipc_domain(self) -> int:
        """How many of them can map each other's memory: those of the host."""
        return self.get_n_ranks_per_node()

    def send(self, data: int, size: int, peer: int, tag: int = 0) -> None:
        """Sends the bytes of the host that begin at an address."""
        self._communicator.send(_bytes(data, size), peer, tag)

    def recv(self, data: int, size: int, peer: int, tag: int = 0) -> None:
        """Receives as many bytes."""
        self._communicator.recv(_bytes(data, size), peer, tag)

    def all_gather(self, all_data: int, size: int) -> None:
        """Of `size` bytes of each rank, in their order; this rank's own are at their place."""
        gather = _runtime.prepare(self._communicator, "all_gather", {})
        own = all_data + self._communicator.rank * size
        total = size * self._communicator.size
        gather.run(own, all_data, size, total, DataType.uint8, ReduceOp.NOP, 0)

    def barrier(self) -> None:
        """Waits until all ranks have called it."""
        self._communicator.barrier()


def _bytes(address: int, size: int) -> ctypes.Array[ctypes.c_char]:
    if address == 0 or size < 0:
        raise ValueError(f"a message has an address and a size, not {address} and {size} bytes")
    return (ctypes.c_char * size).from_address(address)


def _bootstrap(self: Communicator) -> Bootstrap:
    """How its ranks reach each other."""
    return Bootstrap(self)


def _remote_rank_of(self: Communicator, connection: Connection) -> int:
    """To whom a connection goes."""
    return connection.remote_rank


def _tag_of(self: Communicator, connection: Connection) -> int:
    """With which tag it was made."""
    return connection.tag


def _forwarded(name: str) -> Callable[..., Any]:
    """The method of that name of the communicator of C++, whose first use is collective."""

    def method(self: Communicator, *arguments: Any, **named: Any) -> Any:
        return getattr(native_of(self), name)(*arguments, **named)

    method.__name__ = name
    method.__doc__ = getattr(NativeCommunicator, name).__doc__
    return method


def _install() -> None:
    for name in ("build_semaphore", "connect", "recv_memory", "register_memory", "send_memory"):
        setattr(_runtime.Communicator, name, _forwarded(name))
    _runtime.Communicator.bootstrap = _bootstrap  # type: ignore[method-assign]
    _runtime.Communicator.remote_rank_of = _remote_rank_of  # type: ignore[method-assign]
    _runtime.Communicator.tag_of = _tag_of  # type: ignore[method-assign]


_install()
