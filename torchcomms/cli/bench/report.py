"""The table, the data and the plot."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from typing import Any

from torchcomms.cli.bench.measure import Row

_GIGA = 1e9
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")


def heading(libraries: Sequence[str]) -> str:
    """Two lines above the rows."""
    first, second = (
        f"# {'':16} {'':>12} {'':>12} {'':>8} {'':>5} {'':>4} {'':>5}",
        f"# {'operation':16} {'bytes':>12} {'count':>12} {'type':>8} {'redop':>5} {'root':>4} "
        f"{'place':>5}",
    )
    for library in libraries:
        first += f" | {library:^37}"
        second += f" | {'time us':>10} {'algbw':>8} {'busbw':>8} {'wrong':>8}"
    return f"{first.rstrip()}\n{second}   (GB/s)"


def line(rows: Sequence[Row]) -> str:
    """Of one operation and size, all libraries."""
    first = rows[0]
    root = "-" if first.root is None else first.root
    place = "in" if first.is_in_place else "out" if first.bytes else "-"
    text = f"  {first.operation:16} {first.bytes:12} {first.count:12}"
    text += f" {first.type or '-':>8} {first.op or '-':>5} {root:>4} {place:>5}"
    for row in rows:
        if row.seconds is None:
            text += f" | {'-':>10} {'-':>8} {'-':>8} {'-':>8}"
            continue
        wrong = "-" if row.wrong is None else str(row.wrong)
        algbw = f"{row.algbw / _GIGA:8.3g}" if row.bytes else f"{'-':>8}"
        busbw = f"{row.busbw / _GIGA:8.3g}" if row.bytes else f"{'-':>8}"
        text += f" | {row.seconds * 1e6:10.2f} {algbw} {busbw} {wrong:>8}"
    return text


def summary(rows: Sequence[Row]) -> str:
    """The mean busbw of each library, as nccl-tests print it, and what was wrong."""
    lines = []
    for library in dict.fromkeys(row.library for row in rows):
        own = [row for row in rows if row.library == library]
        rated = [row.busbw for row in own if row.bytes and row.seconds is not None]
        checked = [row.wrong for row in own if row.wrong is not None]
        found = f"{sum(checked)} wrong elements" if checked else "results were not looked at"
        mean = f"mean busbw {sum(rated) / len(rated) / _GIGA:.3f} GB/s, " if rated else ""
        lines.append(f"# {library}: {mean}{found}")
    return "\n".join(lines)


def data(about: dict[str, Any], rows: Sequence[Row]) -> str:
    return json.dumps(
        {
            "schema": 1,
            **about,
            "rows": [
                {
                    "library": row.library,
                    "operation": row.operation,
                    "bytes": row.bytes,
                    "count": row.count,
                    "type": row.type,
                    "redop": row.op,
                    "root": row.root,
                    "in_place": row.is_in_place,
                    **_times(row),
                    "wrong": row.wrong,
                }
                for row in rows
            ],
        }
    )


def _times(row: Row) -> dict[str, float | None]:
    if row.seconds is None:
        return {"time_us": None, "algbw_gbs": None, "busbw_gbs": None}
    return {
        "time_us": round(row.seconds * 1e6, 3),
        "algbw_gbs": round(row.algbw / _GIGA, 6),
        "busbw_gbs": round(row.busbw / _GIGA, 6),
    }


class _Axis:
    """Logarithmic, from a power of ten to another."""

    def __init__(self, values: Sequence[float], at: float, length: float) -> None:
        self._low = math.floor(math.log10(min(values)))
        self._high = max(math.ceil(math.log10(max(values))), self._low + 1)
        self._at, self._length = at, length

    def place(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._at + share * self._length

    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self._low, self._high + 1)]


def plot(title: str, rows: Sequence[Row]) -> str:
    """An SVG: busbw by size, a panel for each operation and a line for each library."""
    width, height, margin = 420, 300, 60
    rated = [row for row in rows if row.bytes and row.busbw > 0]
    operations = list(dict.fromkeys(row.operation for row in rated))
    libraries = list(dict.fromkeys(row.library for row in rated))
    columns = min(len(operations), 3) or 1
    lines_of_panels = -(-len(operations) // columns) or 1
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * width}" '
        f'height="{lines_of_panels * height + 60}" font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="20" font-size="14">{escape(title)}</text>',
    ]
    for i, library in enumerate(libraries):
        colour = _COLOURS[i % len(_COLOURS)]
        parts.append(f'<text x="{10 + 120 * i}" y="42" fill="{colour}">{escape(library)}</text>')
    for index, operation in enumerate(operations):
        left = index % columns * width + margin
        top = index // columns * height + 80
        inside = (width - margin - 20, height - 80)
        own = [row for row in rated if row.operation == operation]
        across = _Axis([row.bytes for row in own], left, inside[0])
        up = _Axis([row.busbw / _GIGA for row in own], top + inside[1], -inside[1])
        parts.append(f'<text x="{left}" y="{top - 6}">{operation}: busbw, GB/s, by bytes</text>')
        for tick in across.ticks():
            x = across.place(tick)
            parts.append(_line(x, top, x, top + inside[1], "#ddd"))
            parts.append(f'<text x="{x - 8:.1f}" y="{top + inside[1] + 14}">{_short(tick)}</text>')
        for tick in up.ticks():
            y = up.place(tick)
            parts.append(_line(left, y, left + inside[0], y, "#ddd"))
            parts.append(f'<text x="{left - 45}" y="{y + 4:.1f}">{tick:g}</text>')
        for i, library in enumerate(libraries):
            points = " ".join(
                f"{across.place(row.bytes):.1f},{up.place(row.busbw / _GIGA):.1f}"
                for row in own
                if row.library == library
            )
            colour = _COLOURS[i % len(_COLOURS)]
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
    return "\n".join([*parts, "</svg>\n"])


def _line(x0: float, y0: float, x1: float, y1: float, colour: str) -> str:
    return f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{colour}"/>'


def _short(number: float) -> str:
    for unit in ("", "K", "M"):
        if number < 1000:
            return f"{number:g}{unit}"
        number /= 1000
    return f"{number:g}G"
