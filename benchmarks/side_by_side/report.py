"""Tables, JSON and plots of a sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib
from rich.console import Console
from rich.table import Table
from rich.text import Text

from side_by_side.operations import OPERATIONS, format_size
from side_by_side.sweep import COPY, Row

matplotlib.use("Agg")
import matplotlib.pyplot as plt

Point = tuple[str, int]


class Report:
    """Compares one library, `ours`, with the fastest of `rivals`."""

    def __init__(
        self, rows: list[Row], ranks: int, statistic: str, ours: str, rivals: list[str]
    ) -> None:
        self.statistic = statistic
        self.ranks = ranks
        self.ours = ours
        self.rivals = rivals
        self.libraries = list(dict.fromkeys(row.library for row in rows if row.library != COPY))
        self.cells = {(row.operation, row.nbytes, row.library): row for row in rows}

    def us(self, point: Point, library: str) -> float | None:
        row = self.cells.get((*point, library))
        return row.us(self.statistic) if row else None

    def roofline_us(self, point: Point) -> float | None:
        """What a perfect algorithm would need if it were memcpy that limits it."""
        operation, nbytes = point
        copy = self.us((COPY, nbytes), COPY)
        copies = OPERATIONS[operation].roofline_copies(self.ranks)
        return copy * copies if copy and copies else None

    def best_rival_us(self, point: Point) -> float | None:
        times = [self.us(point, rival) for rival in self.rivals if rival != self.ours]
        return min((time for time in times if time is not None), default=None)

    def points(self, operation: str) -> list[Point]:
        sizes = dict.fromkeys(nbytes for name, nbytes, _ in self.cells if name == operation)
        return [(operation, nbytes) for nbytes in sizes]

    def operations(self) -> list[str]:
        return [name for name in OPERATIONS if self.points(name)]

    def print(self, console: Console) -> None:
        """A table per operation: microseconds, the ratio to the best rival, to the roofline."""
        for operation in self.operations():
            table = Table(
                title=f"{operation}, {self.ranks} ranks, µs ({self.statistic})",
                title_justify="left",
            )
            for title in ("bytes", *self.libraries, *self._comparisons()):
                table.add_column(title, justify="right", overflow="fold")
            for point in self.points(operation):
                table.add_row(format_size(point[1]), *self._cells(point))
            console.print(table)

    def _comparisons(self) -> list[str]:
        """Titles of the columns after the libraries'."""
        titles = ["roofline"] if self.points(COPY) else []
        if self.ours in self.libraries:
            titles += ["ours / roofline"] * len(titles)
            titles += ["best rival / ours", "ours, GB/s (bus)"]
        return titles

    def _cells(self, point: Point) -> list[str]:
        cells = []
        for library in self.libraries:
            row = self.cells.get((*point, library))
            cells.append("failed" if row and row.error else number(self.us(point, library)))
        ours, rival = self.us(point, self.ours), self.best_rival_us(point)
        roofline = self.roofline_us(point)
        bandwidth = None
        if ours and point[1]:
            bandwidth = point[1] * OPERATIONS[point[0]].bus_factor(self.ranks) / ours / 1e3
        values = {
            "roofline": number(roofline),
            "ours / roofline": number(ours / roofline if ours and roofline else None),
            "best rival / ours": number(rival / ours if rival and ours else None),
            "ours, GB/s (bus)": number(bandwidth),
        }
        return cells + [values[title] for title in self._comparisons()]

    def plot(self, path: Path) -> bool:
        """Time over size, a panel per operation that has sizes; False if none has."""
        operations = [name for name in self.operations() if len(self.points(name)) > 1]
        if not operations:
            return False
        columns = min(3, len(operations))
        lines = -(-len(operations) // columns)
        figure, axes = plt.subplots(
            lines, columns, figsize=(5 * columns, 4 * lines), squeeze=False, layout="constrained"
        )
        for axis, operation in zip(axes.flat, operations, strict=False):
            points = self.points(operation)
            for library in self.libraries:
                self._line(axis, [(p[1], self.us(p, library)) for p in points], label=library)
            rooflines = [(p[1], self.roofline_us(p)) for p in points]
            self._line(axis, rooflines, label="copy roofline", color="grey", linestyle=":")
            axis.set_title(f"{operation}, {self.ranks} ranks")
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.set_xlabel("bytes")
            axis.set_ylabel("µs per call")
            axis.grid(alpha=0.3)
        for axis in axes.flat[len(operations) :]:
            axis.remove()
        axes[0][0].legend(fontsize="small")
        figure.savefig(path, dpi=120)
        return True

    @staticmethod
    def _line(axis: Any, values: list[tuple[int, float | None]], **style: Any) -> None:
        known = [(nbytes, us) for nbytes, us in values if us]
        if known:
            axis.plot(*zip(*known, strict=True), marker=".", **style)


def number(value: float | None) -> str:
    """Three significant digits or all before the point."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def write(report: Report, record: dict[str, Any], output: Path, console: Console) -> None:
    """Writes OUTPUT.json and, where there is something to draw, OUTPUT.png."""
    output.parent.mkdir(parents=True, exist_ok=True)
    written = [output.with_suffix(".json")]
    written[0].write_text(json.dumps(record, indent=1) + "\n")
    if report.plot(output.with_suffix(".png")):
        written.append(output.with_suffix(".png"))
    console.print("written:", *map(str, written))


def complain(report: Report, missing: dict[str, str], console: Console) -> bool:
    """Says what was left out and what failed; returns whether anything failed."""
    for name, reason in missing.items():
        lines = reason.strip().splitlines()
        brief = " ".join(dict.fromkeys([lines[0], lines[-1]]))
        console.print(Text.assemble((f"left out {name}: ", "yellow"), brief))
    errors = [(row.library, row.error) for row in report.cells.values() if row.error]
    for library, error in dict.fromkeys(errors):
        console.print(Text.assemble((f"{library}: ", "red"), error))
    return bool(errors)
