"""Communicators of C++: what makes connections, and exchanges memory and semaphores."""

from __future__ import annotations

import ctypes
import math
import os
import weakref
from typing import Any, Protocol

from mscclpp import _runtime
from mscclpp.channels import (
    Connection,
    EndpointConfig,
    Future,
    RegisteredMemory,
    Semaphore,
    Transport,
    TransportFlags,
    bits_of,
)
from mscclpp.native_library import Use, checked, error_of_call, library, pointer_of

__all__ = ["NativeCommunicator", "known_of", "native_of"]

_TAG = 0x6E617469  # of the message that has the unique id
_ID_BYTES = 257  # in hexadecimal digits, with a zero
_TIMEOUT = 600


class Channel(Protocol):
    """Whatever ranks send messages through: the communicator of a CommGroup, for example."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def timeout(self) -> float: ...

    def send(self, buffer: Any, peer: int, tag: int, /) -> Any: ...
    def recv(self, buffer: Any, peer: int, tag: int, /) -> Any: ...


class NativeCommunicator:
    """A `mscclpp::Communicator` of C++. Making one is collective.

    What is sent to one rank with one tag arrives in its order. One thread at a time.

    Args:
        where: how ranks find each other: "interface:address:port" or "address:port" of rank 0, or
            the URL of a store of the engine ("file:///DIRECTORY").
        timeout: seconds that making it, and each later wait for a message, may take.

    Raises:
        CommError: it says who did not come, or what is wrong.
    """

    def __init__(self, rank: int, size: int, where: str, timeout: int = _TIMEOUT) -> None:
        self.rank, self.size = rank, size
        self._owner = os.getpid()
        self.use = Use()
        self._own: int = library().mscclpp_communicator_create(rank, size, where.encode(), timeout)
        if not self._own:
            raise error_of_call()

    @classmethod
    def over(cls, channel: Channel) -> NativeCommunicator:
        """That of the ranks of a channel, which it tells each other how they meet."""
        text = ctypes.create_string_buffer(_ID_BYTES)
        if channel.rank == 0:
            checked(library().mscclpp_unique_id(text))
            for peer in range(1, channel.size):
                channel.send(text, peer, _TAG)
        else:
            channel.recv(text, 0, _TAG)
        timeout = max(math.ceil(channel.timeout), 1)
        return cls(channel.rank, channel.size, text.value.decode(), timeout)

    @property
    def handle(self) -> int:
        """Of C++. Raises ValueError after `finalize`."""
        self.use.check()
        return self._own

    def connect(
        self, local_config: EndpointConfig | Transport, remote_rank: int, tag: int = 0
    ) -> Future[Connection]:
        """A connection to that rank, which connects to this one."""
        config = local_config
        if not isinstance(config, EndpointConfig):
            config = EndpointConfig(Transport(config))
        pointer = library().mscclpp_connect(
            self.handle,
            remote_rank,
            tag,
            config.transport,
            config.device.type,
            config.device.id,
            config.max_write_queue_size,
        )
        return Future(Connection, pointer, remote_rank, tag, self.use)

    def register_memory(
        self, ptr: int, size: int, transports: TransportFlags | Transport
    ) -> RegisteredMemory:
        """Memory of this rank, that others are to read or write. Raises ValueError."""
        bits = bits_of(transports)
        return RegisteredMemory(library().mscclpp_register_memory(self.handle, ptr, size, bits))

    def send_memory(self, memory: RegisteredMemory, remote_rank: int, tag: int = 0) -> None:
        """Lets that rank receive it."""
        own = pointer_of(memory, RegisteredMemory)
        checked(library().mscclpp_send_memory(self.handle, own, remote_rank, tag))

    def recv_memory(self, remote_rank: int, tag: int = 0) -> Future[RegisteredMemory]:
        """What that rank sends."""
        pointer = library().mscclpp_receive_memory(self.handle, remote_rank, tag)
        return Future(RegisteredMemory, pointer, remote_rank, tag, self.use)

    def build_semaphore(
        self, connection: Connection, remote_rank: int, tag: int = 0
    ) -> Future[Semaphore]:
        """A semaphore with that rank, which builds one with this."""
        pointer = library().mscclpp_build_semaphore(
            self.handle, pointer_of(connection, Connection), remote_rank, tag
        )
        return Future(Semaphore, pointer, remote_rank, tag, self.use)

    def check_waits(self) -> None:
        """Raises the error of a wait in a kernel on a GPU that has ended in vain: kernels cannot
        raise one.

        Raises:
            CommTimeoutError: it took longer than MSCCLPP_TIMEOUT seconds; it names the rank.
            PeerLostError: the process of that rank has ended.
        """
        checked(library().mscclpp_communicator_check(self.handle))

    def abort(self, reason: str) -> None:
        """Ends what waits for other ranks, here and there, now and later. Any thread."""
        library().mscclpp_communicator_abort(self._own, reason.encode())

    def finalize(self) -> None:
        """Later calls are errors, also those on what it has made. What this rank has of others
        stays mapped as long as its objects live."""
        self.use.is_over = True

    def __del__(self) -> None:
        # A forked child has none of its parent's threads.
        if getattr(self, "_own", None) and self._owner == os.getpid():
            library().mscclpp_communicator_free(self._own)


# The native communicator beside each communicator: made in the first call of all ranks.
_known: weakref.WeakKeyDictionary[Any, NativeCommunicator] = weakref.WeakKeyDictionary()


def native_of(communicator: Any) -> NativeCommunicator:
    """The one beside a communicator of a CommGroup. The first call is collective."""
    if isinstance(communicator, NativeCommunicator):
        return communicator
    if not isinstance(communicator, _runtime.Communicator):
        raise TypeError(
            "comm must be a Communicator, as CommGroup.communicator is, or a NativeCommunicator, "
            f"not {type(communicator).__name__}"
        )
    known = _known.get(communicator)
    if known is None:
        known = _known[communicator] = NativeCommunicator.over(communicator)
    return known


def known_of(communicator: Any) -> NativeCommunicator | None:
    """The one beside a communicator, if it was made."""
    return _known.get(communicator)
