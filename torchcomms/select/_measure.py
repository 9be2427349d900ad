"""Measures what may serve calls on GPUs, each beside the others, in graphs (docs/selection.md)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from torchcomms import _comms

OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast")
LEAST, MOST = 1 << 10, 1 << 30
_BATCHES = 3
_cuda: Any = torch.cuda  # not all of it is typed


class Measured(Protocol):
    """What there is to choose from. The same on all ranks."""

    dtype: torch.dtype
    factor: int  #: from one size to the next

    def choices(self, operation: str, nbytes: int) -> Sequence[str]:
        """What can serve a call to which each rank contributes so much."""

    def force(self, operation: str, choice: str) -> None:
        """From now on that serves; with "" what would."""

    def name(self, choice: str) -> str:
        """What the engine's tables call it."""


class Members:
    """The members of backend ncclx."""

    dtype = torch.bfloat16
    factor = 4

    def __init__(self, force: Callable[[str], Any]) -> None:
        self._force = force

    def choices(self, operation: str, nbytes: int) -> Sequence[str]:
        return ("ctran", "nccl")

    def force(self, operation: str, choice: str) -> None:
        self._force(choice)

    def name(self, choice: str) -> str:
        return "vendor" if choice == "nccl" else choice


class Algorithms:
    """The algorithms and registered plans of backend ctran, of sums of a type that plans have."""

    dtype = torch.float32
    factor = 2

    def __init__(self, explain: Callable[[str, int], Any], force: Callable[[str], Any]) -> None:
        self._explain, self._force = explain, force

    def choices(self, operation: str, nbytes: int) -> Sequence[str]:
        told = self._explain(operation, nbytes)
        return [one.algorithm for one in told.alternatives if not one.why_not]

    def force(self, operation: str, choice: str) -> None:
        self._force(f"{operation}={choice}" if choice else "")

    def name(self, choice: str) -> str:
        return choice


def _sizes(most: int, factor: int) -> list[int]:
    """Of a rank's contribution: some that lie far apart first, then those between."""
    sizes = []
    size = LEAST
    while size <= most:
        sizes.append(size)
        size *= factor
    starts = (0, 4, 2, 6, 1, 5, 3, 7) if factor == 2 else (0, 1)
    return [size for start in starts for size in sizes[start :: len(starts)]]


def call_of(
    comm: _comms.TorchComm, operation: str, nbytes: int, dtype: torch.dtype
) -> Callable[[], _comms.TorchWork]:
    """A call to which each rank contributes so much."""
    size = comm.get_size()
    device = comm.get_device()
    count = max(nbytes // dtype.itemsize // size * size, size)

    def memory(elements: int) -> torch.Tensor:
        return torch.zeros(elements, dtype=dtype, device=device)

    source = memory(count)
    if operation == "all_reduce":
        return lambda: comm.all_reduce(source, _comms.ReduceOp.SUM, async_op=False)
    if operation == "broadcast":
        return lambda: comm.broadcast(source, 0, async_op=False)
    if operation == "all_gather":
        gathered = memory(count * size)
        return lambda: comm.all_gather_single(gathered, source, async_op=False)
    if operation == "all_to_all":
        exchanged = memory(count)
        return lambda: comm.all_to_all_single(exchanged, source, async_op=False)
    part = memory(count // size)
    return lambda: comm.reduce_scatter_single(part, source, _comms.ReduceOp.SUM, async_op=False)


class _Batch:
    """So many calls in a row, as a graph where there is a GPU."""

    def __init__(self, call: Callable[[], _comms.TorchWork], calls: int) -> None:
        self._call, self._calls = call, calls
        self._graph: torch.cuda.CUDAGraph | None = None
        call().wait_blocking()  # what is made at the first call is made
        if not torch.cuda.is_available():
            return
        stream = _cuda.Stream()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=stream):
            for _ in range(calls):
                call()

    def microseconds(self) -> float:
        """Of a call."""
        if self._graph is None:
            start = time.perf_counter()
            for _ in range(self._calls - 1):
                self._call()
            self._call().wait_blocking()
            return (time.perf_counter() - start) * 1e6 / self._calls
        begin, end = (_cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self._graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3 / self._calls


def _greatest(comm: _comms.TorchComm, value: float) -> float:
    """Of all ranks."""
    one = torch.tensor([value], dtype=torch.float64, device=comm.get_device())
    comm.all_reduce(one, _comms.ReduceOp.MAX, async_op=True).wait_blocking()
    return float(one.cpu()[0])


def _most(comm: _comms.TorchComm) -> int:
    """What fits beside all else."""
    if not torch.cuda.is_available():
        return 1 << 20
    free, _ = torch.cuda.mem_get_info()
    room = -_greatest(comm, -float(free)) / 4 / comm.get_size()
    return min(MOST, int(room))


def measure(
    comm: _comms.TorchComm,
    seconds: float,
    measured: Measured,
    progress: Callable[[float, str], None] | None,
) -> list[dict[str, Any]]:
    """The rows of a table, the same on all ranks. Collective."""
    sizes = _sizes(_most(comm), measured.factor)
    points = [(op, nbytes) for nbytes in sizes for op in OPERATIONS]
    start = time.monotonic()
    rows = []
    for done, (operation, nbytes) in enumerate(points):
        passed = _greatest(comm, time.monotonic() - start)
        if passed > seconds and done >= len(OPERATIONS):
            break
        if progress is not None:
            share = max(done / len(points), min(passed / seconds, 1.0))
            progress(share, f"{operation} {nbytes}")
        choices = measured.choices(operation, nbytes)
        if len(choices) < 2:
            continue
        call = call_of(comm, operation, nbytes, measured.dtype)
        calls = 20 if nbytes <= 1 << 20 else 4 if nbytes <= 1 << 26 else 2
        try:
            batches = {}
            for choice in choices:
                measured.force(operation, choice)
                batches[choice] = _Batch(call, calls)
            times: dict[str, list[float]] = {choice: [] for choice in choices}
            for _ in range(_BATCHES):  # in turns, so that noise hits all
                for choice in choices:
                    measured.force(operation, choice)
                    times[choice].append(batches[choice].microseconds())
        finally:
            measured.force(operation, "")
        medians = {
            measured.name(choice): _greatest(comm, sorted(of_choice)[_BATCHES // 2])
            for choice, of_choice in times.items()
        }
        rows.append({"collective": operation, "bytes": nbytes, "us": medians})
        del call, batches
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    if progress is not None:
        progress(1.0, "")
    return rows
