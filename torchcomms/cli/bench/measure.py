"""How long an operation takes: checked first, then timed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from torchcomms._errors import CommError
from torchcomms.cli.bench.libraries import Library
from torchcomms.cli.bench.operations import Operation, Place, Prepared

_ENOUGH_SECONDS = 0.05  # of one measurement, where the user names no iterations
_FEWEST, _MOST = 5, 20_000


@dataclass(frozen=True)
class Row:
    """One library, operation and size; seconds are the slowest rank's mean."""

    library: str
    operation: str
    bytes: int
    count: int
    seconds: float | None  # None: the library has no such operation
    algbw: float  # bytes per second
    busbw: float
    wrong: int | None  # elements, on all ranks; None: not checked
    type: str = ""
    op: str = ""  # of what reduces
    root: int | None = None  # of what has one
    is_in_place: bool = False


@dataclass(frozen=True)
class Plan:
    sizes: list[int]
    iterations: int | None  # None: as many as take long enough
    warmup: int
    checks: bool


def sizes(begin: int, end: int, factor: float | None, step: int | None) -> list[int]:
    """From `begin` to `end`, each so many times the one before, or so many bytes more."""
    found = [begin]
    while True:
        following = found[-1] + step if step else _times(found[-1], factor or 2, end)
        if following > end:
            return found
        found.append(following)


def _times(size: int, factor: float, end: int) -> int:
    """At least one byte more, and more than `end` instead of what is too large for a number."""
    return max(int(min(size * factor, end + 1)), size + 1)


@contextmanager
def _named(what: str) -> Iterator[None]:
    """What torch raises says neither of which library nor of which operation it is, and has stacks
    of C++ below."""
    try:
        yield
    except CommError:
        raise
    except (RuntimeError, ValueError, TypeError) as error:
        raise CommError(f"{what}: {str(error).partition(chr(10))[0]}") from error


class Bench:
    """Times libraries among the same ranks, which agree through torch's store."""

    def __init__(self, place: Place, plan: Plan, store: dist.Store) -> None:
        self._place = place
        self._plan = plan
        self._store = store
        self._rendezvous = 0

    def rows(self, libraries: list[Library], operation: Operation) -> Iterator[Row]:
        """All libraries of one size, then of the next."""
        place = self._place
        element = torch.empty(0, dtype=place.dtype).element_size()
        blocks = place.size if operation.has_blocks else 1
        named = self._plan.sizes if operation.name != "barrier" else [0]
        before = None
        for size in named:
            count = max(size // element // blocks, 1) if operation.name != "barrier" else 0
            if count == before:
                continue  # both are rounded to the same
            before = count
            total = sum(place.counts(count)) if operation.is_uneven else count * blocks
            moved = total * element
            for library in libraries:
                about: dict[str, Any] = {
                    "type": str(place.dtype).removeprefix("torch.") if count else "",
                    "op": place.op if operation.reduces else "",
                    "root": place.root if operation.has_root else None,
                    "is_in_place": operation.is_in_place
                    or (place.is_in_place and operation.can_be_in_place),
                }
                if operation.name in library.lacks:
                    yield Row(library.name, operation.name, moved, total, None, 0, 0, None, **about)
                    continue
                with _named(f"{library.name}: {operation.name} of {moved} bytes"):
                    prepared = operation.prepare(place, count)
                    wrong = self._wrong(library, prepared)
                    seconds = self._time(library, prepared)
                algbw = moved / seconds
                yield Row(
                    library.name,
                    operation.name,
                    moved,
                    total,
                    seconds,
                    algbw,
                    algbw * operation.bus(place.size),
                    wrong,
                    **about,
                )

    def _wrong(self, library: Library, prepared: Prepared) -> int | None:
        if not self._plan.checks or prepared.fill is None or prepared.results is None:
            return None
        prepared.fill()
        prepared.call(library)
        own = sum(int((found != expected).sum()) for found, expected in prepared.results())
        return int(sum(self._all(own)))

    def _time(self, library: Library, prepared: Prepared) -> float:
        if prepared.fill is not None:
            prepared.fill()
        first = self._mean(library, prepared, self._plan.warmup)
        if self._plan.iterations is not None:
            iterations = self._plan.iterations
        else:
            slowest = max(max(self._all(first)), 1e-9)
            iterations = min(max(int(_ENOUGH_SECONDS / slowest), _FEWEST), _MOST)
        return max(self._all(self._mean(library, prepared, iterations)))

    def _mean(self, library: Library, prepared: Prepared, iterations: int) -> float:
        if iterations < 1:
            return 0.0
        library.barrier()
        self._synchronize()
        begun = time.perf_counter()
        for _ in range(iterations):
            prepared.call(library)
        self._synchronize()
        return (time.perf_counter() - begun) / iterations

    def _synchronize(self) -> None:
        if self._place.device.type == "cuda":
            torch.cuda.synchronize(self._place.device)

    def _all(self, own: float) -> list[float]:
        """What every rank has, told to all."""
        self._rendezvous += 1
        prefix = f"bench/{self._rendezvous}"
        self._store.set(f"{prefix}/{self._place.rank}", repr(float(own)))
        return [float(self._store.get(f"{prefix}/{r}")) for r in range(self._place.size)]
