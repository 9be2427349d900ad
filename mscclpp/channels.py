"""Connections, memory, semaphores and channels of C++ (mscclpp/core.hpp and what is beside it).

`CommGroup` makes most of them. What a kernel gets of one is `device_handle().raw`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Generic, TypeVar

from mscclpp.devices import has_gpu
from mscclpp.native_library import (
    NativeObject,
    Use,
    checked,
    error_of_call,
    library,
    pointer_of,
)

__all__ = [
    "BaseMemoryChannel",
    "BasePortChannel",
    "Connection",
    "Device",
    "DeviceHandle",
    "DeviceType",
    "EndpointConfig",
    "Fifo",
    "Future",
    "Host2DeviceSemaphore",
    "Host2HostSemaphore",
    "MemoryChannel",
    "MemoryDevice2DeviceSemaphore",
    "NvlsConnection",
    "PortChannel",
    "ProxyService",
    "RegisteredMemory",
    "Semaphore",
    "SwitchChannel",
    "Transport",
    "TransportFlags",
    "bits_of",
]

T = TypeVar("T", bound=NativeObject)


class Transport(IntEnum):
    """How a rank reaches another.

    CudaIpc: memory of one host, which others map; memory channels need it. Ethernet: messages, by
    whatever network there is between two hosts, or within one; for port channels, connections and
    semaphores. IB0 to IB7: the same, and an error where it is not RDMA; the engine chooses the
    device (`CTRAN_IB_HCA`), whatever the number.
    """

    Unknown = 0
    CudaIpc = 1
    IB0 = 2
    IB1 = 3
    IB2 = 4
    IB3 = 5
    IB4 = 6
    IB5 = 7
    IB6 = 8
    IB7 = 9
    Ethernet = 10

    def __or__(self, other: int) -> TransportFlags:  # type: ignore[override]
        return TransportFlags(self) | other


class TransportFlags:
    """Several of them."""

    def __init__(self, *transports: Transport) -> None:
        self._bits = sum(1 << transport for transport in set(transports))

    def has(self, transport: Transport) -> bool:
        """Whether that one is among them."""
        return bool(self._bits >> transport & 1)

    def __or__(self, other: TransportFlags | int) -> TransportFlags:
        both = TransportFlags()
        both._bits = self._bits | bits_of(other)
        return both

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (TransportFlags, Transport)) and self._bits == bits_of(other)

    def __hash__(self) -> int:
        return hash(self._bits)

    def __repr__(self) -> str:
        return " | ".join(one.name for one in Transport if self.has(one)) or "TransportFlags()"


def bits_of(transports: TransportFlags | int) -> int:
    """A bit for each transport."""
    if isinstance(transports, TransportFlags):
        return transports._bits
    return 1 << Transport(transports)


class DeviceType(IntEnum):
    """Where kernels run."""

    Unknown = 0
    CPU = 1
    GPU = 2


def _kernels() -> DeviceType:
    return DeviceType.GPU if has_gpu() else DeviceType.CPU


@dataclass(frozen=True)
class Device:
    """Where the kernels run that use a channel: by default on a GPU where there is one.

    Attributes:
        id: of the GPU; -1: the one that is current.
    """

    type: DeviceType = field(default_factory=_kernels)
    id: int = -1


@dataclass(frozen=True)
class EndpointConfig:
    """This rank's end of a connection."""

    transport: Transport
    device: Device = field(default_factory=Device)
    max_write_queue_size: int = -1


@dataclass(frozen=True)
class DeviceHandle:
    """What a kernel gets: `raw` are the bytes of the struct."""

    raw: bytes


class _HasHandle(NativeObject):
    def device_handle(self) -> DeviceHandle:
        """What a kernel gets; for as long as this is there."""
        size = library().mscclpp_device_handle(self._pointer, None, 0)
        if size == 0:
            raise error_of_call()
        raw = ctypes.create_string_buffer(size)
        library().mscclpp_device_handle(self._pointer, raw, size)
        return DeviceHandle(raw.raw)


class Future(NativeObject, Generic[T]):
    """What another rank sends."""

    def __init__(self, kind: type[T], pointer: Any, rank: int, tag: int, use: Use) -> None:
        super().__init__(pointer, use)
        self._kind, self._rank, self._tag = kind, rank, tag
        self._value: T | None = None

    def get(self) -> T:
        """Waits for it, and for what that rank sent before with the same tag. Raises CommError."""
        if self._value is None:
            self._value = self._kind(library().mscclpp_future_get(self._pointer), self._use)
            if isinstance(self._value, Connection):
                self._value.remote_rank, self._value.tag = self._rank, self._tag
        return self._value


class RegisteredMemory(NativeObject):
    """Memory of this rank that others read or write, or what this rank has got of theirs."""

    def data(self) -> int:
        """Where it is in this process. Raises ValueError if it cannot be mapped here."""
        address: int | None = library().mscclpp_memory_data(self._pointer)
        if address is None:
            raise error_of_call()
        return address

    def size(self) -> int:
        """In bytes."""
        return int(library().mscclpp_memory_size(self._pointer))

    def transports(self) -> TransportFlags:
        """What it was registered for."""
        bits = library().mscclpp_memory_transports(self._pointer)
        return TransportFlags(*(one for one in Transport if bits >> one & 1))


class Connection(NativeObject):
    """From this rank to another, for copies by the host.

    Attributes:
        remote_rank: the other one.
        tag: with which it was made.
    """

    remote_rank: int = -1
    tag: int = 0

    def write(
        self, dst: RegisteredMemory, dst_offset: int, src: RegisteredMemory, src_offset: int,
        size: int,
    ) -> None:  # fmt: skip
        """Copies bytes to memory of the other end. Raises ValueError outside of either memory."""
        checked(
            library().mscclpp_connection_write(
                self._pointer,
                pointer_of(dst, RegisteredMemory),
                dst_offset,
                pointer_of(src, RegisteredMemory),
                src_offset,
                size,
            )
        )

    def update_and_sync(
        self, dst: RegisteredMemory, dst_offset: int, src: int, new_value: int
    ) -> None:
        """Sets a word of the other end, behind all that was written before, and the one at address
        `src` here."""
        source = ctypes.cast(src, ctypes.POINTER(ctypes.c_uint64))
        checked(
            library().mscclpp_connection_update_and_sync(
                self._pointer, pointer_of(dst, RegisteredMemory), dst_offset, source, new_value
            )
        )

    def flush(self, timeout_usec: int = -1) -> None:
        """Returns when the sources of all that was written before may be changed."""
        checked(library().mscclpp_connection_flush(self._pointer, timeout_usec))

    def transport(self) -> Transport:
        """Of this end."""
        return Transport(library().mscclpp_connection_transport(self._pointer, 0))

    def remote_transport(self) -> Transport:
        """Of the other end."""
        return Transport(library().mscclpp_connection_transport(self._pointer, 1))


class Semaphore(NativeObject):
    """A pair of words, one at each end of a connection, each raised by the other end."""


class Host2DeviceSemaphore(_HasHandle):
    """Signals from the host of one rank to kernels of the other."""

    def __init__(self, semaphore: Semaphore) -> None:
        pointer = library().mscclpp_host_to_device_semaphore(pointer_of(semaphore, Semaphore))
        super().__init__(pointer, semaphore._use)

    def signal(self) -> None:
        """Counts one signal at the other end."""
        checked(library().mscclpp_semaphore_signal(self._pointer))


class Host2HostSemaphore(NativeObject):
    """Signals between hosts of ranks."""

    def __init__(self, semaphore: Semaphore) -> None:
        pointer = library().mscclpp_host_to_host_semaphore(pointer_of(semaphore, Semaphore))
        super().__init__(pointer, semaphore._use)

    def signal(self) -> None:
        """Counts one signal at the other end."""
        checked(library().mscclpp_semaphore_signal(self._pointer))

    def poll(self) -> bool:
        """Whether there is a signal that was not waited for; if so, it has been now."""
        found = library().mscclpp_semaphore_poll(self._pointer)
        if found < 0:
            raise error_of_call()
        return bool(found)

    def wait(self, max_spin_count: int = -1) -> None:
        """Waits for one more signal: at most so many looks, unless that is -1.

        Raises:
            CommTimeoutError: there was none.
            PeerLostError: the process of that rank has ended.
        """
        checked(library().mscclpp_semaphore_wait(self._pointer, max_spin_count))


class MemoryDevice2DeviceSemaphore(_HasHandle):
    """Signals between kernels of both ranks."""

    def __init__(self, semaphore: Semaphore) -> None:
        pointer = library().mscclpp_device_to_device_semaphore(pointer_of(semaphore, Semaphore))
        super().__init__(pointer, semaphore._use)


class BaseMemoryChannel(_HasHandle):
    """Signals between kernels of two ranks."""

    def __init__(self, semaphore: Semaphore | MemoryDevice2DeviceSemaphore) -> None:
        own = pointer_of(semaphore, Semaphore, MemoryDevice2DeviceSemaphore)
        pointer = library().mscclpp_memory_channel(own, None, None, None)
        super().__init__(pointer, semaphore._use)


class MemoryChannel(_HasHandle):
    """Threads of kernels read and write memory of another rank.

    Args:
        dst: of the other rank.
        src: of this one.
        packet_buffer: where packets for this rank come, as an address.

    Raises:
        ValueError: threads cannot reach `dst`, or the connection is not CudaIpc.
    """

    def __init__(
        self,
        semaphore: Semaphore | MemoryDevice2DeviceSemaphore,
        dst: RegisteredMemory,
        src: RegisteredMemory,
        packet_buffer: int = 0,
    ) -> None:
        pointer = library().mscclpp_memory_channel(
            pointer_of(semaphore, Semaphore, MemoryDevice2DeviceSemaphore),
            pointer_of(dst, RegisteredMemory),
            pointer_of(src, RegisteredMemory),
            packet_buffer,
        )
        super().__init__(pointer, semaphore._use)


class BasePortChannel(_HasHandle):
    """Kernels ask, and the proxy moves the data. `ProxyService` makes them."""


class PortChannel(BasePortChannel):
    """The same, from one memory of this rank to one of another."""


class ProxyService(NativeObject):
    """A thread that moves what kernels ask it to, and what it knows by number.

    Args:
        fifo_size: how many requests fit.
        device: where the kernels run.
    """

    def __init__(self, fifo_size: int = 512, device: DeviceType | None = None) -> None:
        kernels = _kernels() if device is None else device
        super().__init__(library().mscclpp_proxy_service(fifo_size, kernels))

    def _add(self, added: object, *kinds: type[NativeObject]) -> int:
        number: int = library().mscclpp_proxy_add(self._pointer, pointer_of(added, *kinds))
        if number < 0:
            raise error_of_call()
        return number

    def add_semaphore(self, semaphore: Semaphore | Host2DeviceSemaphore) -> int:
        """The number of a semaphore."""
        return self._add(semaphore, Semaphore, Host2DeviceSemaphore)

    def build_and_add_semaphore(self, communicator: Any, connection: Connection) -> int:
        """The same of a new one, which the other rank builds, too. `communicator` is
        `CommGroup.communicator`."""
        built = communicator.build_semaphore(connection, connection.remote_rank, connection.tag)
        return self.add_semaphore(built.get())

    def add_memory(self, memory: RegisteredMemory) -> int:
        """The number of a memory."""
        return self._add(memory, RegisteredMemory)

    def start_proxy(self, blocking: bool = False) -> None:
        """Starts the thread; with `blocking`, returns when it runs."""
        checked(library().mscclpp_proxy_start(self._pointer, blocking))

    def stop_proxy(self) -> None:
        """Handles what was asked, then ends the thread. Raises what went wrong there."""
        checked(library().mscclpp_proxy_stop(self._pointer))

    def base_port_channel(self, semaphore_id: int) -> BasePortChannel:
        """A channel whose requests say the numbers of memories."""
        return BasePortChannel(library().mscclpp_port_channel(self._pointer, semaphore_id, -1, -1))

    def port_channel(self, semaphore_id: int, dst: int, src: int) -> PortChannel:
        """A channel between two memories. Raises ValueError if there are none of these numbers."""
        if dst < 0 or src < 0:
            raise ValueError(f"a proxy service has no memory {min(dst, src)}")
        return PortChannel(library().mscclpp_port_channel(self._pointer, semaphore_id, dst, src))


class Fifo(_HasHandle):
    """Requests of kernels, for a proxy of the program's own.

    Args:
        size: how many fit.
        device: where the kernels run.
    """

    def __init__(self, size: int = 512, device: DeviceType | None = None) -> None:
        kernels = _kernels() if device is None else device
        super().__init__(library().mscclpp_fifo(size, kernels))

    def poll(self) -> tuple[int, int, int, int] | None:
        """The oldest request, if there is one: its four words."""
        words = (ctypes.c_uint64 * 4)()
        if library().mscclpp_fifo_poll(self._pointer, words) != 1:
            return None
        return words[0], words[1], words[2], words[3]

    def pop(self) -> None:
        """Frees its place: it has been handled. Raises ValueError if there is none."""
        checked(library().mscclpp_fifo_pop(self._pointer))


class SwitchChannel(_HasHandle):
    """Buffers of several ranks, which each of them reduces from and stores to."""

    def __init__(self, pointer: Any, buffer: int, use: Use | None) -> None:
        super().__init__(pointer, use)
        self._buffer = buffer

    def get_device_ptr(self) -> int:
        """Of this rank's buffer."""
        return self._buffer


class NvlsConnection(NativeObject):
    """The ranks of switch channels. The name is the one that programs use; multicast is never
    used."""

    def bind_allocated_memory(self, device_ptr: int, size: int) -> SwitchChannel:
        """A channel of buffers that all ranks bind, each as many bytes of a RawGpuBuffer.
        Collective. Raises ValueError if the sizes differ."""
        pointer = library().mscclpp_bind_memory(self._pointer, device_ptr, size)
        return SwitchChannel(pointer, device_ptr, self._use)


def connected(
    communicator_handle: int, ranks: Sequence[int], size: int, use: Use
) -> NvlsConnection:
    """Of those ranks of a communicator of C++; at most `size` bytes are bound."""
    numbers = (ctypes.c_int * len(ranks))(*ranks)
    return NvlsConnection(
        library().mscclpp_connect_nvls(communicator_handle, numbers, len(ranks), size), use
    )
