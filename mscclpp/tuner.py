"""Which algorithm is the fastest, by measuring, for every size: once for a machine."""

from __future__ import annotations

import array
import ctypes
import hashlib
import json
import os
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mscclpp import _runtime, engine
from mscclpp._version import version
from mscclpp.algorithm import KINDS, Algorithm, CollectiveRequest, checked_communicator
from mscclpp.benches import Bench, CpuBench, GpuBench
from mscclpp.compiler import PlanAlgorithm
from mscclpp.defaults import default_algorithms
from mscclpp.errors import CommError
from mscclpp.executor import Executor
from mscclpp.files import write_at_once
from mscclpp.types import DataType, ReduceOp

if TYPE_CHECKING:
    from mscclpp._runtime import Communicator

__all__ = ["TunedConfig", "Tuning", "tune"]

_FORMAT = 2
_SIZES = tuple(1 << i for i in range(10, 23, 2))
_SIZES_OF_GPUS = tuple(1 << i for i in range(10, 27, 2))
_BATCHES = 3
# Other blocks and threads are tried of algorithms that are at most so much slower with their own.
_NEARLY = 1.5
_SHAPED = re.compile(r"(.*)@(\d+)x(\d+)")
Progress = Callable[[float, str], None]


class TunedConfig(NamedTuple):
    """What `execute` is to be called with.

    Attributes:
        nblocks, nthreads_per_block: 0: as the algorithm likes.
    """

    algorithm: Algorithm
    nblocks: int
    nthreads_per_block: int


@dataclass(frozen=True)
class Tuning:
    """What was measured; the same on all ranks.

    Attributes:
        seconds: by collective, size in bytes and name of the algorithm: the slowest rank's. Where
            blocks and threads were given, the name ends with them: "default_allreduce_rsag@16x512".
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
        return self.best_config(collective, nbytes).algorithm

    def best_config(self, collective: str, nbytes: int) -> TunedConfig:
        """The same, with the thread blocks and their threads; of the CPU they are 0."""
        by_size = self.seconds.get(collective)
        if by_size is None:
            raise ValueError(f"{collective!r} was not measured: {', '.join(self.seconds)} was")
        size = min((s for s in by_size if s >= nbytes), default=max(by_size))
        fastest = min(by_size[size], key=by_size[size].__getitem__)
        shaped = None if fastest in self.algorithms else _SHAPED.fullmatch(fastest)
        if shaped is None:
            return TunedConfig(self.algorithms[fastest], 0, 0)
        name, blocks, threads = shaped.groups()
        return TunedConfig(self.algorithms[name], int(blocks), int(threads))

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
    (default: ~/.cache/torchcomms), by the machine, its GPUs and their links, the engine, the ranks,
    the algorithms and the sizes.

    Once the communicator has used GPUs, by an `execute` or by `CommGroup.use_gpu`, it measures on
    them, in graphs: each algorithm, and the fastest ones with several numbers of thread blocks and
    of threads.

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
        TypeError: `comm` is no communicator, or the collectives are no list of names, or the sizes
            no integers.
        CommError: an algorithm gives wrong results, or another failure.
    """
    communicator: Communicator = checked_communicator(getattr(comm, "communicator", comm))
    if isinstance(collectives, str):
        raise TypeError(f"collectives is a list of names, such as [{collectives!r}]")
    given = list(default_algorithms() if algorithms is None else algorithms)
    named = {algorithm.name: algorithm for algorithm in given}
    if len(named) < len(given):
        raise ValueError("two of the algorithms have the same name")
    sizes = None if sizes is None else [index(size) for size in sizes]
    if not collectives or sizes == []:
        raise ValueError("there is nothing to measure: no collective, or no size")
    if any(size < 1 for size in sizes or []):
        raise ValueError(f"sizes must be positive numbers of bytes, not {sizes}")
    unit = 4 * communicator.size
    bench = CpuBench(_processor()) if communicator.gpu is None else GpuBench(communicator.gpu)
    usual = _SIZES if communicator.gpu is None else _SIZES_OF_GPUS
    wanted = sorted({max(unit, size // unit * unit) for size in sizes or usual})
    for collective in collectives:
        if not any(algorithm.collective == collective for algorithm in given):
            raise ValueError(f"there is no algorithm for {collective!r} to measure")
    if not budget_s > 0:
        raise ValueError("the time to tune in must be positive")
    path = _path(communicator, bench, given, collectives, wanted)
    found = None if again else _kept(path)
    seconds = _told(communicator, found)
    measured = seconds is None
    if seconds is None:
        run = _Measurement(communicator, bench, budget_s, progress or _bar(communicator))
        seconds = run.of(given, collectives, wanted)
        if communicator.rank == 0:
            _keep(path, seconds)
    return Tuning(_numbered(seconds), named, path, measured)


class _Measurement:
    """One run of the tuner on one rank."""

    def __init__(
        self, comm: Communicator, bench: Bench, budget_s: float, progress: Progress
    ) -> None:
        self._comm = comm
        self._bench = bench
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
            result[collective][str(size)] = self._point(
                candidates, size, self._budget / len(points)
            )
        self._progress(1.0, "")
        return result

    def _point(self, candidates: Sequence[Algorithm], size: int, share: float) -> dict[str, float]:
        buffers = _Buffers(self._comm, self._bench, candidates[0].collective, size)
        own = [TunedConfig(candidate, 0, 0) for candidate in candidates]
        shapes = self._bench.shapes
        times = self._measured(own, buffers, share / 2 if shapes else share)
        if not shapes:
            return times
        # All ranks have the same times, and so go on alike.
        limit = _NEARLY * min(times.values())
        shaped = [
            TunedConfig(candidate, *shape)
            for candidate in candidates
            for shape in shapes
            # A program has thread blocks of its own.
            if times[candidate.name] <= limit and not isinstance(candidate, PlanAlgorithm)
        ]
        return {**times, **self._measured(shaped, buffers, share / 2)}

    def _measured(
        self, configs: Sequence[TunedConfig], buffers: _Buffers, share: float
    ) -> dict[str, float]:
        runs: dict[str, Callable[[int], float]] = {}
        for config in configs:
            run, name = self._runner(config, buffers), _name_of(config)
            buffers.poison()
            run()
            right = self._slowest(float(not buffers.are_right())) == 0.0
            if not right:
                raise CommError(f"{name!r} gives wrong results at {buffers.size} bytes", op="tune")
            runs[name] = self._bench.repeated(run)
        once = {name: self._slowest(timed(3)) for name, timed in runs.items()}
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(_BATCHES):
            for name, timed in runs.items():
                self._comm.barrier()
                each = share / len(runs) / _BATCHES
                calls = min(1000, max(1, int(each / max(once[name], 1e-7))))
                times[name].append(self._slowest(timed(calls)))
        return {name: statistics.median(taken) for name, taken in times.items()}

    def _runner(self, config: TunedConfig, buffers: _Buffers) -> Callable[[], None]:
        algorithm, blocks, threads = config
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
                self._bench.stream,
                self._executor,
                blocks,
                threads,
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

    def __init__(self, comm: Communicator, bench: Bench, collective: str, size: int) -> None:
        self.size = size
        self._bench = bench
        self._rank = comm.rank
        part = size // comm.size
        self.input_size = part if collective == "allgather" else size
        self.output_size = part if collective == "reducescatter" else size
        self.input = bench.allocate(self.input_size)
        one_buffer = collective == "broadcast"
        self.output = self.input if one_buffer else bench.allocate(self.output_size)
        pattern = array.array("i", ((i * (comm.rank + 3)) % 251 for i in range(1009)))
        times = self.input_size // (4 * len(pattern)) + 1
        own = (pattern * times).tobytes()[: self.input_size]
        bench.write(self.input, own)
        self._wanted = self._reference(comm, collective, own)

    def _reference(self, comm: Communicator, collective: str, own: bytes) -> bytes:
        """What the engine makes of it by itself, on the CPU."""
        given = ctypes.create_string_buffer(own, self.input_size)
        made = given if collective == "broadcast" else ctypes.create_string_buffer(self.output_size)
        operation = _runtime.prepare(comm, KINDS[collective], {})
        operation.run(
            ctypes.addressof(given), ctypes.addressof(made), self.input_size, self.output_size,
            DataType.int32, ReduceOp.SUM, 0,
        )  # fmt: skip
        return made.raw

    def poison(self) -> None:
        """Overwrites what a collective has to write."""
        if self.output is not self.input or self._rank != 0:
            self._bench.write(self.output, b"\xee" * self.output_size)

    def are_right(self) -> bool:
        return self._bench.read(self.output, self.output_size) == self._wanted


def _name_of(config: TunedConfig) -> str:
    algorithm, blocks, threads = config
    return f"{algorithm.name}@{blocks}x{threads}" if blocks or threads else algorithm.name


def _path(
    comm: Communicator,
    bench: Bench,
    algorithms: Sequence[Algorithm],
    collectives: Sequence[str],
    sizes: Sequence[int],
) -> Path:
    def what(algorithm: Algorithm) -> str:
        return algorithm.to_json(None) if isinstance(algorithm, PlanAlgorithm) else ""

    about = {
        "version": version,
        "engine": engine.digest(),
        "gpus": [_runtime.gpu_name(number) for number in range(_runtime.gpu_count())],
        "links": _runtime.gpu_links() if _runtime.gpu_count() else "",
        "processor": bench.name,
        "shapes": bench.shapes,
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
    text = json.dumps({"format": _FORMAT, "seconds": seconds}, indent=1)
    try:
        write_at_once(path, text.encode())
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
