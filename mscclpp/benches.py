"""Where the tuner measures: memory, and runs that are repeated, of the CPU or of a GPU."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from mscclpp import _runtime

__all__ = ["Bench", "CpuBench", "GpuBench", "Memory"]

_MOST_IN_A_GRAPH = 50


class Memory(NamedTuple):
    """It is there as long as somebody holds this."""

    address: int
    owner: object


class Bench(Protocol):
    """Where buffers lie, and how long calls take there."""

    name: str
    """Of what computes."""
    stream: int
    """For `execute`."""
    shapes: tuple[tuple[int, int], ...]
    """Blocks and threads worth trying, besides an algorithm's own."""

    def allocate(self, size: int) -> Memory: ...
    def write(self, memory: Memory, data: bytes) -> None: ...
    def read(self, memory: Memory, size: int) -> bytes: ...

    def repeated(self, run: Callable[[], None]) -> Callable[[int], float]:
        """Of a number of calls: how long each took, in seconds."""
        ...


class CpuBench:
    """Calls that end before they return."""

    stream = 0
    shapes: tuple[tuple[int, int], ...] = ()

    def __init__(self, name: str) -> None:
        self.name = name

    def allocate(self, size: int) -> Memory:
        memory = _runtime.allocate(size, -1)
        return Memory(memory.address, memory)

    def write(self, memory: Memory, data: bytes) -> None:
        ctypes.memmove(memory.address, data, len(data))

    def read(self, memory: Memory, size: int) -> bytes:
        return ctypes.string_at(memory.address, size)

    def repeated(self, run: Callable[[], None]) -> Callable[[int], float]:
        def timed(calls: int) -> float:
            start = time.perf_counter()
            _times(calls, run)
            return (time.perf_counter() - start) / calls

        return timed


class GpuBench:
    """Calls in graphs: what it costs to launch them one by one does not count."""

    shapes = tuple(
        (blocks, threads) for blocks in (4, 8, 16, 32, 64) for threads in (128, 256, 512)
    )

    def __init__(self, device: int) -> None:
        self.name = _runtime.gpu_name(device)
        self._device = device
        self._stream = _runtime.open_stream(device)
        self.stream = self._stream.handle

    def allocate(self, size: int) -> Memory:
        return Memory(*_runtime.allocate_gpu(self._device, size))

    def write(self, memory: Memory, data: bytes) -> None:
        self._stream.copy(memory.address, data)
        self._stream.synchronize()

    def read(self, memory: Memory, size: int) -> bytes:
        return self._stream.read(memory.address, size)

    def repeated(self, run: Callable[[], None]) -> Callable[[int], float]:
        graphs: dict[int, Callable[[], None]] = {}

        def timed(calls: int) -> float:
            each = min(calls, _MOST_IN_A_GRAPH)
            if each not in graphs:
                graphs[each] = self._stream.capture(partial(_times, each, run))
                graphs[each]()
            launches = -(-calls // each)
            self._stream.synchronize()
            start = time.perf_counter()
            _times(launches, graphs[each])
            self._stream.synchronize()
            return (time.perf_counter() - start) / (launches * each)

        return timed


def _times(number: int, run: Callable[[], None]) -> None:
    for _ in range(number):
        run()
