"""What is timed: backends of torchcomms, and torch.distributed's own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

import torchcomms
from torchcomms import ReduceOp

_TIMEOUT = timedelta(minutes=5)  # of torch.distributed; Gloo's own is 30 minutes


class Library(Protocol):
    """Blocking operations on one group of ranks; on GPUs they are queued on the current stream."""

    name: str
    lacks: frozenset[str]  # names of operations

    def all_reduce(self, tensor: Tensor, op: str) -> None: ...
    def reduce(self, tensor: Tensor, root: int, op: str) -> None: ...
    def broadcast(self, tensor: Tensor, root: int) -> None: ...
    def all_gather(self, output: Tensor, given: Tensor) -> None: ...
    def reduce_scatter(self, output: Tensor, given: Tensor, op: str) -> None: ...
    def all_to_all(self, output: Tensor, given: Tensor) -> None: ...
    def all_gather_v(self, outputs: list[Tensor], given: Tensor) -> None: ...
    def reduce_scatter_v(self, output: Tensor, given: list[Tensor], op: str) -> None: ...
    def all_to_all_v(
        self, output: Tensor, given: Tensor, output_counts: list[int], counts: list[int]
    ) -> None: ...
    def gather(self, outputs: list[Tensor], given: Tensor, root: int) -> None: ...
    def scatter(self, output: Tensor, given: list[Tensor], root: int) -> None: ...
    def exchange(self, output: Tensor, given: Tensor, to: int, source: int) -> None: ...
    def barrier(self) -> None: ...
    def end(self) -> None: ...


class TorchComms:
    """A backend of torchcomms."""

    lacks = frozenset[str]()

    def __init__(self, backend: str, device: torch.device) -> None:
        self.name = backend
        self._comm = torchcomms.new_comm(backend, device, name=f"bench-{backend}")

    def all_reduce(self, tensor: Tensor, op: str) -> None:
        self._comm.all_reduce(tensor, getattr(ReduceOp, op.upper()), False)

    def reduce(self, tensor: Tensor, root: int, op: str) -> None:
        self._comm.reduce(tensor, root, getattr(ReduceOp, op.upper()), False)

    def broadcast(self, tensor: Tensor, root: int) -> None:
        self._comm.broadcast(tensor, root, False)

    def all_gather(self, output: Tensor, given: Tensor) -> None:
        self._comm.all_gather_single(output, given, False)

    def reduce_scatter(self, output: Tensor, given: Tensor, op: str) -> None:
        self._comm.reduce_scatter_single(output, given, getattr(ReduceOp, op.upper()), False)

    def all_to_all(self, output: Tensor, given: Tensor) -> None:
        self._comm.all_to_all_single(output, given, False)

    def all_gather_v(self, outputs: list[Tensor], given: Tensor) -> None:
        self._comm.all_gather_v(outputs, given, False)

    def reduce_scatter_v(self, output: Tensor, given: list[Tensor], op: str) -> None:
        self._comm.reduce_scatter_v(output, given, getattr(ReduceOp, op.upper()), False)

    def all_to_all_v(
        self, output: Tensor, given: Tensor, output_counts: list[int], counts: list[int]
    ) -> None:
        self._comm.all_to_all_v_single(output, given, output_counts, counts, False)

    def gather(self, outputs: list[Tensor], given: Tensor, root: int) -> None:
        self._comm.gather(outputs, given, root, False)

    def scatter(self, output: Tensor, given: list[Tensor], root: int) -> None:
        self._comm.scatter(output, given, root, False)

    def exchange(self, output: Tensor, given: Tensor, to: int, source: int) -> None:
        batch = self._comm.batch_op_create()
        batch.send(given, to)
        batch.recv(output, source)
        batch.issue(False)

    def barrier(self) -> None:
        self._comm.barrier(False)

    def end(self) -> None:
        self._comm.finalize()


class Distributed:
    """A backend of torch.distributed."""

    def __init__(self, backend: str) -> None:
        self.name = f"c10d/{backend}"
        # Of the others blocks have one size.
        uneven = () if backend == "nccl" else ("all_gather_v", "reduce_scatter_v")
        self.lacks = frozenset(uneven)
        if not dist.is_backend_available(backend):
            raise ValueError(f"this torch has no backend '{backend}' of torch.distributed")
        if not dist.is_initialized():
            dist.init_process_group("mpi" if backend == "mpi" else "gloo", timeout=_TIMEOUT)
        # None on ranks outside of a group, which there are none of here.
        self._group: Any = dist.new_group(backend=backend, timeout=_TIMEOUT)

    def all_reduce(self, tensor: Tensor, op: str) -> None:
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op.upper()), self._group)

    def reduce(self, tensor: Tensor, root: int, op: str) -> None:
        dist.reduce(tensor, root, getattr(dist.ReduceOp, op.upper()), self._group)

    def broadcast(self, tensor: Tensor, root: int) -> None:
        dist.broadcast(tensor, root, self._group)

    def all_gather(self, output: Tensor, given: Tensor) -> None:
        dist.all_gather_into_tensor(output, given, self._group)

    def reduce_scatter(self, output: Tensor, given: Tensor, op: str) -> None:
        dist.reduce_scatter_tensor(output, given, getattr(dist.ReduceOp, op.upper()), self._group)

    def all_to_all(self, output: Tensor, given: Tensor) -> None:
        dist.all_to_all_single(output, given, group=self._group)

    def all_gather_v(self, outputs: list[Tensor], given: Tensor) -> None:
        dist.all_gather(outputs, given, self._group)

    def reduce_scatter_v(self, output: Tensor, given: list[Tensor], op: str) -> None:
        dist.reduce_scatter(output, given, getattr(dist.ReduceOp, op.upper()), self._group)

    def all_to_all_v(
        self, output: Tensor, given: Tensor, output_counts: list[int], counts: list[int]
    ) -> None:
        dist.all_to_all_single(output, given, output_counts, counts, self._group)

    def gather(self, outputs: list[Tensor], given: Tensor, root: int) -> None:
        dist.gather(given, outputs or None, root, self._group)

    def scatter(self, output: Tensor, given: list[Tensor], root: int) -> None:
        dist.scatter(output, given or None, root, self._group)

    def exchange(self, output: Tensor, given: Tensor, to: int, source: int) -> None:
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, given, to, self._group),
                dist.P2POp(dist.irecv, output, source, self._group),
            ]
        )
        for work in works:
            work.wait()

    def barrier(self) -> None:
        dist.barrier(self._group)

    def end(self) -> None:
        dist.destroy_process_group(self._group)


def open_all(names: Sequence[str], device: torch.device) -> list[Library]:
    """Those libraries. Collective.

    Raises:
        CommError, RuntimeError, ValueError: there is no such library here.
    """
    found: list[Library] = []
    for name in names:
        kind, slash, backend = name.rpartition("/")
        if slash and kind != "c10d":
            raise ValueError(f"'{name}' is neither a backend of torchcomms nor c10d/BACKEND")
        if name == "mpi" or slash:
            found.append(Distributed(backend))
        else:
            found.append(TorchComms(name, device))
    return found
