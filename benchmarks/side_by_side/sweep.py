"""Times several libraries in turns."""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from side_by_side.libraries import Library
from side_by_side.machine import machine
from side_by_side.operations import format_size

COPY = "copy"
"""The roofline: an operation of the C++ programs, and the library name of its rows."""


@dataclass
class Row:
    """What one library needs for one operation and size."""

    library: str
    operation: str
    nbytes: int
    samples_us: list[float] = field(default_factory=list)
    """Per repeat, the slowest rank's mean in microseconds."""
    error: str = ""

    def us(self, statistic: str) -> float | None:
        """Their median or, on a machine that others use too, their minimum."""
        if not self.samples_us:
            return None
        return min(self.samples_us) if statistic == "min" else statistics.median(self.samples_us)


@dataclass
class Settings:
    """How long and how often."""

    operations: list[str]
    sizes: list[int]
    repeats: int
    min_ms: float
    statistic: str

    def points(self) -> list[tuple[str, int]]:
        """Operations and sizes in order; a barrier has no size."""
        return [
            (operation, nbytes)
            for operation in self.operations
            for nbytes in ([0] if operation == "barrier" else self.sizes)
        ]


class Turns:
    """One library's repeats of one operation and size."""

    def __init__(self, library: Library, row: Row, min_ms: float) -> None:
        self.library = library
        self.row = row
        self._min_seconds = min_ms / 1e3
        self._estimate = 0.0

    def calibrate(self) -> None:
        """Checks the result and finds out how many calls make a turn."""
        self.library.check(self.row.operation, self.row.nbytes)
        self._estimate = self._time(1, 3)
        self._estimate = self._time(1, self._calls(self._min_seconds / 4))

    def take(self) -> None:
        iterations = self._calls(self._min_seconds)
        self.row.samples_us.append(self._time(iterations // 10 + 2, iterations) * 1e6)

    def _time(self, warmup: int, iterations: int) -> float:
        return self.library.time(self.row.operation, self.row.nbytes, warmup, iterations)

    def _calls(self, seconds: float) -> int:
        return min(max(5, round(seconds / max(self._estimate, 1e-8))), 200_000)


def run(libraries: list[Library], settings: Settings, console: Console) -> list[Row]:
    """Times every operation and size on every library.

    The libraries take turns at each point, another one first in each repeat, so that what else
    happens on the machine hits all alike. An error, such as a wrong result, costs the library that
    point; a rank that died or hangs costs it all later ones. The copy roofline of every size is
    measured in the same way if a C++ library is there.
    """
    rows: list[Row] = []
    lost: dict[str, str] = {}
    copier = next((library for library in libraries if "/" not in library.name), None)
    points = settings.points()
    if copier:
        points = [(COPY, nbytes) for nbytes in settings.sizes] + points
    first_of = {operation: (operation, nbytes) for operation, nbytes in reversed(points)}
    columns = [TextColumn("{task.description:32}"), BarColumn(), MofNCompleteColumn()]
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("", total=len(points))
        for operation, nbytes in points:
            if not console.is_terminal and (operation, nbytes) == first_of[operation]:
                console.print(f"timing {operation}")
            progress.update(task, description=f"{operation} {format_size(nbytes)}")
            timed = [copier] if operation == COPY and copier else libraries
            turns = []
            for library in timed:
                name = COPY if operation == COPY else library.name
                row = Row(name, operation, nbytes, error=lost.get(library.name, ""))
                rows.append(row)
                turns.append(Turns(library, row, settings.min_ms))
            for turn in turns:
                attempt(turn, turn.calibrate, lost)
            for repeat in range(settings.repeats):
                first = repeat % len(turns)
                for turn in turns[first:] + turns[:first]:
                    attempt(turn, turn.take, lost)
            progress.advance(task)
    return rows


def attempt(turn: Turns, step: Callable[[], None], lost: dict[str, str]) -> None:
    """Runs a step of a turn unless an earlier one failed."""
    if turn.row.error:
        return
    try:
        step()
    except RuntimeError as error:
        turn.row.samples_us.clear()
        turn.row.error = str(error)
        if "wrong result" not in str(error):
            lost[turn.library.name] = str(error)
            turn.library.kill()


def record(rows: Iterable[Row], ranks: int, cpus: str, settings: Settings) -> dict[str, Any]:
    """Rows and what is needed to judge them, for JSON."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(),
        "ranks": ranks,
        "pinned_to": cpus,
        "settings": asdict(settings),
        "rows": [{**asdict(row), "us": row.us(settings.statistic)} for row in rows],
    }
