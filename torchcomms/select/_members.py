"""Measures the members of backend ncclx, ctran and NCCL, beside each other (docs/selection.md)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from torchcomms import _comms

MEMBERS = ("ctran", "nccl")
# As the engine's tables call them.
_NAMES = {"ctran": "ctran", "nccl": "vendor"}
OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast")
LEAST, MOST = 1 << 10, 1 << 30
_BATCHES = 3
_cuda: Any = torch.cuda  # not all of it is typed

_Force = Callable[[str], Any]


def _sizes(most: int) -> list[int]:
    """Of a rank's contribution, each four times the one before; the ends first, then between."""
    sizes = []
    size = LEAST
    while size <= most:
        sizes.append(size)
        size *= 4
    return sizes[::2] + sizes[1::2]


def _call(comm: _comms.TorchComm, operation: str, nbytes: int) -> Callable[[], _comms.TorchWork]:
    """A call to which each rank contributes so much, of bfloat16."""
    size = comm.get_size()
    device = comm.get_device()
    count = max(nbytes // 2 // size * size, size)

    def memory(elements: int) -> torch.Tensor:
        return torch.zeros(elements, dtype=torch.bfloat16, device=device)

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
    force: _Force,
    progress: Callable[[float, str], None] | None,
) -> list[dict[str, Any]]:
    """The rows of a table, the same on all ranks. Collective; `force` makes a member serve."""
    points = [(op, nbytes) for nbytes in _sizes(_most(comm)) for op in OPERATIONS]
    start = time.monotonic()
    rows = []
    for done, (operation, nbytes) in enumerate(points):
        passed = _greatest(comm, time.monotonic() - start)
        if passed > seconds and done >= len(OPERATIONS):
            break
        if progress is not None:
            share = max(done / len(points), min(passed / seconds, 1.0))
            progress(share, f"{operation} {nbytes}")
        call = _call(comm, operation, nbytes)
        calls = 20 if nbytes <= 1 << 20 else 4 if nbytes <= 1 << 26 else 2
        try:
            batches = {}
            for member in MEMBERS:
                force(member)
                batches[member] = _Batch(call, calls)
            times: dict[str, list[float]] = {member: [] for member in MEMBERS}
            for _ in range(_BATCHES):  # in turns, so that noise hits both
                for member in MEMBERS:
                    force(member)
                    times[member].append(batches[member].microseconds())
        finally:
            force("")
        medians = {m: _greatest(comm, sorted(t)[_BATCHES // 2]) for m, t in times.items()}
        rows.append(
            {
                "collective": operation,
                "bytes": nbytes,
                "us": {_NAMES[member]: us for member, us in medians.items()},
            }
        )
        del call, batches
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    if progress is not None:
        progress(1.0, "")
    return rows
