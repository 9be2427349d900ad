"""Which algorithm is the fastest, by measuring, for every size: once for a machine."""

from __future__ import annotations

import array
import ctypes
import hashlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mscclpp import _runtime
from mscclpp.algorithm import KINDS, Algorithm, CollectiveRequest
from mscclpp.compiler import PlanAlgorithm
from mscclpp.defaults import default_algorithms
from mscclpp.errors import CommError
from mscclpp.executor import Executor
from mscclpp.types import DataType, ReduceOp

if TYPE_CHECKING:
    from mscclpp._runtime import Communicator

__all__ = ["Tuning", "tune"]

_FORMAT = 1
_SIZES = tuple(1 << i for i in range(10, 23, 2))
_BATCHES = 3
Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Tuning:
    """What was measured; the same on all ranks.

    Attributes:
        seconds: by collective, size in bytes and name of the algorithm: the slowest rank's.
        path: where it is kept.
        measured: whether it was now; False: it was found there.
    """

    seconds: dict[str, dict[int, dict[str, float]]]
    algorithms: dict[str, Algorithm]
    path: Path
    measured: bool

    def best(self, collective: str, nbytes: int) -> Algorithm:
        """The fastest algorithm at the next size that was measured, or at the last one. Bytes are
        those of the larger buffer of a rank."""
        by_size = self.seconds[collective]
        size = min((s for s in by_size if s >= nbytes), default=max(by_size))
        return self.algorithms[min(by_size[size], key=by_size[size].__getitem__)]

    def select(
        self, algorithms: dict[str, dict[str, Algorithm]], request: CollectiveRequest
    ) -> Algorithm | None:
        """For `AlgorithmCollectionBuilder.set_algorithm_selector`."""
        if request.collective not in self.seconds:
            return None
        name = self.best(request.collective, request.message_size).name
        return algorithms.get(request.collective, {}).get(name)


def tune(
    comm: Any,
    collectives: Sequence[str] = ("allreduce",),
    sizes: Iterable[int] | None = None,
    budget_s: float = 30.0,
    *,
    algorithms: Iterable[Algorithm] | None = None,
    progress: Progress | None = None,
    again: bool = False,
) -> Tuning:
    """Measures algorithms beside each other, and checks their results while it does. Collective;
    takes about `budget_s`, and a moment at the next start: the result is kept in CTRAN_TUNING_DIR
    (default: ~/.cache/torchcomms), by the machine, the ranks, the algorithms and the sizes.

    Args:
        comm: a `CommGroup`, or its communicator.
        collectives: as algorithms call them.
        sizes: bytes of the larger buffer of a rank; those of all-gather and its like are divided
            among the ranks.
        budget_s: seconds.
        algorithms: default: those that are there by default. The same on all ranks.
        progress: is told how much is done, from 0 to 1, and what is next; by default rank 0 shows a
            bar on a terminal.
        again: whether to measure although there is a result.

    Raises:
        ValueError: there is nothing to measure.
        CommError: an algorithm gives wrong results, or another failure.
    """
    communicator: Communicator = getattr(comm, "communicator", comm)
    given = list(default_algorithms() if algorithms is None else algorithms)
    named = {algorithm.name: algorithm for algorithm in given}
    if len(named) < len(given):
        raise ValueError("two of the algorithms have the same name")
    unit = 4 * communicator.size
    wanted = sorted({max(unit, size // unit * unit) for size in sizes or _SIZES})
    for collective in collectives:
        if not any(algorithm.collective == collective for algorithm in given):
            raise ValueError(f"there is no algorithm for {collective!r} to measure")
    if not budget_s > 0:
        raise ValueError("the time to tune in must be positive")
    path = _path(communicator, given, collectives, wanted)
    found = None if again else _kept(path)
    seconds = _told(communicator, found)
    measured = seconds is None
    if seconds is None:
        run = _Measurement(communicator, budget_s, progress or _bar(communicator))
        seconds = run.of(given, collectives, wanted)
        if communicator.rank == 0:
            _keep(path, seconds)
    return Tuning(_numbered(seconds), named, path, measured)


class _Measurement:
    """One run of the tuner on one rank."""

    def __init__(self, comm: Communicator, budget_s: float, progress: Progress) -> None:
        self._comm = comm
        self._budget = budget_s
        self._progress = progress
        self._executor = Executor(comm)
        self._worst = _runtime.prepare(comm, "all_reduce", {})

    def of(
        self, algorithms: Sequence[Algorithm], collectives: Sequence[str], sizes: Sequence[int]
    ) -> dict[str, dict[str, dict[str, float]]]:
        points = [(collective, size) for collective in collectives for size in sizes]
        result: dict[str, dict[str, dict[str, float]]] = {name: {} for name in collectives}
        for number, (collective, size) in enumerate(points):
            self._progress(number / len(points), f"{collective}, {size} bytes")
            candidates = [one for one in algorithms if one.collective == collective]
            share = self._budget / len(points) / len(candidates)
            result[collective][str(size)] = self._point(candidates, size, share)
        self._progress(1.0, "")
        return result

    def _point(self, candidates: Sequence[Algorithm], size: int, share: float) -> dict[str, float]:
        buffers = _Buffers(self._comm, candidates[0].collective, size)
        buffers.reference(self._comm)
        runs: dict[str, Callable[[], None]] = {}
        for candidate in candidates:
            runs[candidate.name] = self._runner(candidate, buffers)
            buffers.poison()
            runs[candidate.name]()
            right = self._slowest(float(not buffers.are_right())) == 0.0
            if not right:
                raise CommError(
                    f"{candidate.name!r} gives wrong results at {size} bytes", op="tune"
                )
        once = {name: self._slowest(_timed(run, 3)) for name, run in runs.items()}
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(_BATCHES):
            for name, run in runs.items():
                self._comm.barrier()
                calls = min(1000, max(1, int(share / _BATCHES / max(once[name], 1e-7))))
                times[name].append(self._slowest(_timed(run, calls)))
        return {name: statistics.median(taken) for name, taken in times.items()}

    def _runner(self, algorithm: Algorithm, buffers: _Buffers) -> Callable[[], None]:
        extras = {"root": 0}

        def run() -> None:
            code = algorithm.execute(
                self._comm,
                buffers.input.address,
                buffers.output.address,
                buffers.input_size,
                buffers.output_size,
                DataType.int32,
                ReduceOp.SUM,
                executor=self._executor,
                extras=extras,
            )
            if code != 0:
                raise CommError(f"{algorithm.name!r} was not executed: code {code}", op="tune")

        return run

    def _slowest(self, own: float) -> float:
        value = ctypes.c_double(own)
        at = ctypes.addressof(value)
        self._worst.run(at, at, 8, 8, DataType.float64, ReduceOp.MAX, 0)
        return value.value


class _Buffers:
    """Input and output of a collective, with numbers that depend on rank and position."""

    def __init__(self, comm: Communicator, collective: str, size: int) -> None:
        self._collective = collective
        self._rank = comm.rank
        part = size // comm.size
        self.input_size = part if collective == "allgather" else size
        self.output_size = part if collective == "reducescatter" else size
        self.input = _runtime.allocate(self.input_size, -1)
        one_buffer = collective == "broadcast"
        self.output = self.input if one_buffer else _runtime.allocate(self.output_size, -1)
        pattern = array.array("i", ((i * (comm.rank + 3)) % 251 for i in range(1009)))
        times = self.input_size // (4 * len(pattern)) + 1
        ctypes.memmove(self.input.address, (pattern * times).tobytes(), self.input_size)
        self._wanted = b""

    def reference(self, comm: Communicator) -> None:
        """What the engine makes of it by itself."""
        operation = _runtime.prepare(comm, KINDS[self._collective], {})
        operation.run(
            self.input.address, self.output.address, self.input_size, self.output_size,
            DataType.int32, ReduceOp.SUM, 0,
        )  # fmt: skip
        self._wanted = ctypes.string_at(self.output.address, self.output_size)

    def poison(self) -> None:
        """Overwrites what a collective has to write."""
        if self.output is not self.input or self._rank != 0:
            ctypes.memset(self.output.address, 0xEE, self.output_size)

    def are_right(self) -> bool:
        return ctypes.string_at(self.output.address, self.output_size) == self._wanted


def _timed(run: Callable[[], None], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def _path(
    comm: Communicator,
    algorithms: Sequence[Algorithm],
    collectives: Sequence[str],
    sizes: Sequence[int],
) -> Path:
    def what(algorithm: Algorithm) -> str:
        return algorithm.to_json(None) if isinstance(algorithm, PlanAlgorithm) else ""

    about = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "hosts": comm.hosts(),
        "algorithms": [(algorithm.name, what(algorithm)) for algorithm in algorithms],
        "collectives": list(collectives),
        "sizes": list(sizes),
    }
    key = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]
    folder = os.environ.get("CTRAN_TUNING_DIR") or Path.home() / ".cache" / "torchcomms"
    return Path(folder) / f"mscclpp-{comm.size}-{key}.json"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith("model name")), "")


def _kept(path: Path) -> Mapping[str, Any] | None:
    """What is there; None for what cannot be read."""
    try:
        found = json.loads(path.read_text())
        return found["seconds"] if found["format"] == _FORMAT else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(path: Path, seconds: Mapping[str, Any]) -> None:
    """Where it cannot be kept, it is measured at the next start."""
    draft = path.with_suffix(f".{os.getpid()}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps({"format": _FORMAT, "seconds": seconds}, indent=1))
        draft.replace(path)
    except OSError as error:
        print(f"mscclpp: {path} cannot be written: {error}", file=sys.stderr)


def _told(comm: Communicator, own: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What rank 0 has found, on all ranks: their files may differ."""
    text = json.dumps(own).encode() if comm.rank == 0 else b""
    length = ctypes.c_int64(len(text))
    broadcast = _runtime.prepare(comm, "broadcast", {})

    def send(address: int, size: int) -> None:
        broadcast.run(address, address, size, size, DataType.uint8, ReduceOp.NOP, 0)

    send(ctypes.addressof(length), 8)
    buffer = ctypes.create_string_buffer(text, length.value + 1)
    send(ctypes.addressof(buffer), length.value)
    told: dict[str, Any] | None = json.loads(buffer.raw[: length.value])
    return told


def _numbered(seconds: Mapping[str, Any]) -> dict[str, dict[int, dict[str, float]]]:
    return {
        collective: {int(size): dict(times) for size, times in by_size.items()}
        for collective, by_size in seconds.items()
    }


def _bar(comm: Communicator) -> Progress:
    if comm.rank != 0 or not sys.stderr.isatty():
        return lambda done, following: None

    def show(done: float, following: str) -> None:
        bar = "#" * round(done * 30)
        end = "\n" if done >= 1.0 else ""
        print(f"\r[{bar:<30}] {following:<40}", end=end, file=sys.stderr, flush=True)

    return show
