"""How a CommGroup makes connections, memories, semaphores and channels for kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any

from mscclpp.channels import (
    Connection,
    EndpointConfig,
    MemoryChannel,
    NvlsConnection,
    PortChannel,
    ProxyService,
    RegisteredMemory,
    Semaphore,
    Transport,
    TransportFlags,
    connected,
)
from mscclpp.devices import extent
from mscclpp.native_communicator import NativeCommunicator, native_of

if TYPE_CHECKING:
    from mscclpp._runtime import Communicator

__all__ = ["Connections", "connect_nvls_collective"]

Endpoints = EndpointConfig | Transport | Mapping[int, EndpointConfig | Transport]
_MOST_NVLS_BYTES = 1 << 40


def connect_nvls_collective(
    communicator: Any, all_ranks: Sequence[int], size: int
) -> NvlsConnection:
    """The ranks of switch channels. Collective over them. No multicast: each rank reads from all
    buffers, and stores to all.

    Args:
        communicator: `CommGroup.communicator`.
        size: the most bytes that are bound.
    """
    native = native_of(communicator)
    return connected(native.handle, all_ranks, size, native.use)


class Connections:
    """Of a CommGroup. What has to do with another rank waits for it, which calls the same."""

    communicator: Communicator
    my_rank: int
    nranks: int

    @property
    def native(self) -> NativeCommunicator:
        """The communicator of C++ of these ranks. The first use is collective."""
        return native_of(self.communicator)

    def check_waits(self) -> None:
        """Raises the error of a wait in a kernel on a GPU that has ended in vain; see
        NativeCommunicator."""
        self.native.check_waits()

    def make_connection(
        self,
        all_ranks: Iterable[int],
        endpoints: Endpoints = Transport.CudaIpc,
        use_switch: bool = False,
    ) -> Any:
        """Connections to other ranks, who make theirs.

        Args:
            all_ranks: to whom; this rank itself is left out.
            endpoints: how, for all or for each: a Transport, or an EndpointConfig, which also says
                where the kernels run.
            use_switch: for `SwitchChannel`: the ranks, this one included, become an NvlsConnection.

        Returns:
            A dict with a Connection for each rank.

        Raises:
            ValueError: there is no such rank or transport, or no RDMA where IB0 to IB7 ask for it.
            CommError: a rank did not come.
        """
        ranks = self._checked(all_ranks)
        if use_switch:
            return connect_nvls_collective(self.communicator, ranks, _MOST_NVLS_BYTES)
        others = [rank for rank in ranks if rank != self.my_rank]
        futures = {
            rank: self.native.connect(
                endpoints[rank] if isinstance(endpoints, Mapping) else endpoints, rank
            )
            for rank in others
        }
        connections = {rank: future.get() for rank, future in futures.items()}
        for connection in connections.values():
            if connection.transport() is not Transport.CudaIpc:
                connection.flush()  # returns when the other end is there
        return connections

    def register_local_memory(
        self, tensor: Any, connections: Mapping[int, Connection]
    ) -> RegisteredMemory:
        """Memory of this rank, for those connections. Kernels of others reach what comes from
        RawGpuBuffer, or is on a GPU. Over Ethernet and IB others write it as long as the result
        lives, or a proxy that has been told of it.

        Args:
            tensor: of torch, cupy or numpy, contiguous; or a RawGpuBuffer.
        """
        ends = _of_connections(connections).values()
        transports = TransportFlags(*(one.transport() for one in ends))
        address, bytes = extent(tensor)
        return self.native.register_memory(address, bytes, transports)

    def register_tensor_with_connections(
        self, tensor: Any, connections: Mapping[int, Connection]
    ) -> dict[int, RegisteredMemory]:
        """The memory of each rank that registers its own, this one's included."""
        own = self.register_local_memory(tensor, connections)
        return self._exchanged(own, connections)

    def _exchanged(
        self, own: RegisteredMemory, connections: Mapping[int, Connection]
    ) -> dict[int, RegisteredMemory]:
        for rank in connections:
            self.native.send_memory(own, rank)
        futures = {rank: self.native.recv_memory(rank) for rank in connections}
        return {self.my_rank: own, **{rank: future.get() for rank, future in futures.items()}}

    def make_semaphores(self, connections: Mapping[int, Connection]) -> dict[int, Semaphore]:
        """A semaphore with each of those ranks."""
        futures = {
            rank: self.native.build_semaphore(connection, rank)
            for rank, connection in _of_connections(connections).items()
        }
        return {rank: future.get() for rank, future in futures.items()}

    def make_memory_channels(
        self, tensor: Any, connections: Mapping[int, Connection]
    ) -> dict[int, MemoryChannel]:
        """A channel from this rank's tensor to each other rank's."""
        semaphores = self.make_semaphores(connections)
        memories = self.register_tensor_with_connections(tensor, connections)
        return {
            rank: MemoryChannel(semaphores[rank], memories[rank], memories[self.my_rank])
            for rank in connections
        }

    def make_memory_channels_with_scratch(
        self,
        tensor: Any,
        scratch: RegisteredMemory | Any,
        connections: Mapping[int, Connection],
    ) -> dict[int, MemoryChannel]:
        """A channel from this rank's tensor to each other rank's scratch; packets for this rank
        come to its own.

        Args:
            scratch: a tensor, or a RegisteredMemory of this rank.
        """
        semaphores = self.make_semaphores(connections)
        own = self._registered(scratch, connections)
        memories = self._exchanged(own, connections)
        source = self.register_local_memory(tensor, connections)
        return {
            rank: MemoryChannel(semaphores[rank], memories[rank], source, own.data())
            for rank in connections
        }

    def make_port_channels(
        self, proxy_service: ProxyService, tensor: Any, connections: Mapping[int, Connection]
    ) -> dict[int, PortChannel]:
        """A channel from this rank's tensor to each other rank's, through the proxy."""
        semaphores = self.register_semaphore_with_proxy(proxy_service, connections)
        memories = self.register_memory_with_proxy(proxy_service, tensor, connections)
        return {
            rank: proxy_service.port_channel(
                semaphores[rank], memories[rank], memories[self.my_rank]
            )
            for rank in connections
        }

    def make_port_channels_with_scratch(
        self,
        proxy_service: ProxyService,
        tensor: Any,
        scratch: RegisteredMemory | Any,
        connections: Mapping[int, Connection],
    ) -> dict[int, PortChannel]:
        """A channel from this rank's tensor to each other rank's scratch, through the proxy."""
        semaphores = self.register_semaphore_with_proxy(proxy_service, connections)
        memories = self._exchanged(self._registered(scratch, connections), connections)
        proxy_service.add_memory(memories[self.my_rank])  # others write it as long as it is known
        source = proxy_service.add_memory(self.register_local_memory(tensor, connections))
        return {
            rank: proxy_service.port_channel(
                semaphores[rank], proxy_service.add_memory(memories[rank]), source
            )
            for rank in connections
        }

    def register_semaphore_with_proxy(
        self, proxy_service: ProxyService, connections: Mapping[int, Connection]
    ) -> dict[int, int]:
        """The number that the proxy has for a semaphore with each of those ranks."""
        semaphores = self.make_semaphores(connections)
        return {rank: proxy_service.add_semaphore(one) for rank, one in semaphores.items()}

    def register_memory_with_proxy(
        self, proxy_service: ProxyService, tensor: Any, connections: Mapping[int, Connection]
    ) -> dict[int, int]:
        """The number that the proxy has for the tensor of each rank, this one's included."""
        memories = self.register_tensor_with_connections(tensor, connections)
        return {rank: proxy_service.add_memory(one) for rank, one in memories.items()}

    def _registered(
        self, memory: RegisteredMemory | Any, connections: Mapping[int, Connection]
    ) -> RegisteredMemory:
        if isinstance(memory, RegisteredMemory):
            return memory
        return self.register_local_memory(memory, connections)

    def _checked(self, all_ranks: Iterable[int]) -> list[int]:
        try:
            ranks = list(dict.fromkeys(map(index, all_ranks)))
        except TypeError:
            raise TypeError(f"all_ranks must be numbers of ranks, not {all_ranks!r}") from None
        for rank in ranks:
            if not 0 <= rank < self.nranks:
                raise ValueError(f"there is no rank {rank} among {self.nranks} ranks")
        return ranks


def _of_connections(connections: Mapping[int, Connection]) -> Mapping[int, Connection]:
    if not isinstance(connections, Mapping):
        raise TypeError(
            f"connections must be what make_connection returns, not {type(connections).__name__}"
        )
    return connections
