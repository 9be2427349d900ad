"""Groups of ranks."""

from __future__ import annotations

import ctypes
import hashlib
import os
from typing import TYPE_CHECKING, Any

from mscclpp import _runtime, bootstrap
from mscclpp.algorithm import within
from mscclpp.connections import Connections
from mscclpp.forwarding import Bootstrap
from mscclpp.native_communicator import known_of

if TYPE_CHECKING:
    from types import TracebackType

    from mscclpp._runtime import Communicator

__all__ = ["CommGroup"]

_TIMEOUT = 600.0


class CommGroup(Connections):
    """The ranks that work together. Making one is collective over them.

    One of these says who they are:

    Args:
        mpi_comm: a communicator of mpi4py.
        torch_group: a group of torch.distributed.
        interfaceIpPortTrio: "INTERFACE:IP:PORT", or "IP:PORT", where rank 0 listens; with `rank`
            and `size`. Ranks that have the environment variable MSCCLPP_SECRET let only those in
            that have the same.
        store: one of torch's, or what has `set`, `get` and `add`; with `rank` and `size`.

    With none of them, what torchrun or another launcher has left in the environment does; one
    process without that is a group of one.

    Args:
        rank: of this process.
        size: how many ranks there are.
        timeout: seconds that making it, and each operation, may take.

    Raises:
        ValueError: the address or the ranks make no sense here.
        CommTimeoutError: `ranks` did not come.
        CommError: the port is in use, for example.
    """

    def __init__(
        self,
        mpi_comm: Any = None,
        torch_group: Any = None,
        interfaceIpPortTrio: str = "",
        rank: int | None = None,
        size: int | None = None,
        *,
        store: Any = None,
        timeout: float = _TIMEOUT,
    ) -> None:
        ways = [mpi_comm is not None, torch_group is not None, bool(interfaceIpPortTrio)]
        if sum(ways) + (store is not None) > 1:
            raise TypeError(
                "a CommGroup takes one of mpi_comm, torch_group, interfaceIpPortTrio and store"
            )
        if not isinstance(timeout, int | float) or isinstance(timeout, bool):
            raise TypeError(f"timeout must be a number of seconds, not {timeout!r}")
        if not 0 < timeout <= 1e9:
            raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}")
        place: bootstrap.Place | None
        if mpi_comm is not None:
            place = bootstrap.by_mpi(mpi_comm)
        elif torch_group is not None:
            place = bootstrap.by_torch_group(torch_group)
        elif interfaceIpPortTrio:
            place = bootstrap.by_address(interfaceIpPortTrio, rank, size, timeout)
        elif store is not None:
            place = bootstrap.by_store(store, rank, size, timeout)
        elif rank is not None or size is not None:
            raise TypeError(
                "rank and size need interfaceIpPortTrio or store, by which ranks find each other"
            )
        else:
            place = bootstrap.by_environment(timeout)
        self._take(_formed(place, timeout))

    @classmethod
    def from_comm(cls, comm: Any) -> CommGroup:
        """The group of a `torchcomms` communicator of backend ctran: the same ranks, and the same
        communicator, so calls through either come in one order."""
        if not hasattr(comm, "_engine_token"):
            raise TypeError(f"comm must be a communicator of torchcomms, not {comm!r}")
        found = _runtime.find(comm._engine_token)
        if found is None:
            raise ValueError(
                f"communicator {comm.get_name()!r} of backend {comm.get_backend()!r} is none of "
                f"the engine ctran"
            )
        group = cls.__new__(cls)
        group._take(found)
        return group

    def _take(self, communicator: Communicator) -> None:
        hosts = communicator.hosts()
        self.communicator = communicator
        self.bootstrap = Bootstrap(communicator)
        self.my_rank = communicator.rank
        self.nranks = communicator.size
        self.nranks_per_node = hosts.count(hosts[self.my_rank])
        self.nranks_per_ipc_domain = self.nranks_per_node

    def __repr__(self) -> str:
        return f"<CommGroup {self.communicator.name!r}: rank {self.my_rank} of {self.nranks}>"

    def barrier(self) -> None:
        """Waits until all ranks have called it."""
        self.communicator.barrier()

    def send(self, tensor: Any, peer: int, tag: int = 0) -> None:
        """Sends the bytes of a tensor, an array, or whatever is a buffer."""
        self._check_message(peer, tag)
        self.communicator.send(_buffer(tensor), peer, tag)

    def recv(self, tensor: Any, peer: int, tag: int = 0) -> None:
        """Receives as many bytes as the tensor, or whatever is a buffer, has."""
        self._check_message(peer, tag)
        self.communicator.recv(_buffer(tensor), peer, tag)

    def _check_message(self, peer: int, tag: int) -> None:
        within("peer", peer, self.nranks)
        within("tag", tag, 2**31)

    def use_gpu(self, device: int | None = None) -> None:
        """Makes the communicator of the ranks' GPUs now, instead of in the first `execute` on a
        GPU's memory. Collective, once; not in a capture.

        Args:
            device: of this rank; default: the one that is current, or else the one that LOCAL_RANK,
                or the rank, counts to.

        Raises:
            UnsupportedError: some rank has no such GPU.
        """
        self.communicator.use_gpu(self._gpu() if device is None else device)

    def _gpu(self) -> int:
        count = _runtime.gpu_count()
        current = _runtime.current_gpu() if count else None
        if current is not None:
            return current
        local = os.environ.get("LOCAL_RANK", "")
        return (int(local) if local.isdigit() else self.my_rank) % max(count, 1)

    def abort(self, reason: str = "abort was called") -> None:
        """Ends every blocked and every later call of all ranks. Any thread."""
        self.communicator.abort(reason)
        native = known_of(self.communicator)
        if native is not None:
            native.abort(reason)

    def finalize(self) -> None:
        """Leaves; later calls are errors, also those on connections, semaphores and channels. At
        the end of a `with` block, too."""
        self.communicator.finalize()
        native = known_of(self.communicator)
        if native is not None:
            native.finalize()

    def __enter__(self) -> CommGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            self.finalize()


def _formed(place: bootstrap.Place | None, timeout: float) -> Communicator:
    if place is None or place.size == 1:
        return _runtime.alone("mscclpp")
    init_point = _runtime.open_init_point()
    handles = place.exchange(init_point.handle)
    if handles[place.rank] != init_point.handle:
        raise ValueError(f"two processes say that they are rank {place.rank} of {place.size}")
    # A name that all ranks have, and no other group.
    name = "mscclpp-" + hashlib.sha256("".join(handles).encode()).hexdigest()[:12]
    return init_point.form(handles, name, timeout)


def _buffer(tensor: Any) -> Any:
    if not hasattr(tensor, "data_ptr"):
        return tensor
    if tensor.device.type != "cpu":
        raise ValueError(f"a message is in memory of the CPU, not of {tensor.device}")
    if not tensor.is_contiguous():
        raise ValueError("a message has to be contiguous")
    return (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
