"""Pictures of plans: space and time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

_COLOURS = {"move": "#4c78a8", "reduce": "#e45756", "sync": "#bab0ac"}
_LEFT, _WIDTH, _ROW, _TOP = 90, 900, 26, 46


@dataclass(frozen=True)
class Run:
    """What a plan does in virtual time."""

    seconds: float
    ends: list[float]
    activities: list[tuple[int, int, int, int, float, float]]  # rank lane step execution start end
    transfers: list[tuple[int, int, int, float, float]]  # from to bytes start end
    links: dict[str, float]  # seconds in use
    stuck: list[str]


def _kind(step: str) -> str:
    if " = reduce(" in step:
        return "reduce"
    return "move" if " = " in step else "sync"


def _steps(plan: str) -> dict[tuple[int, int, int], str]:
    """What each step does, from the plan's text."""
    steps: dict[tuple[int, int, int], str] = {}
    rank = lane = 0
    for line in plan.splitlines():
        words = line.replace(",", "").split()
        if line.startswith("  rank "):
            rank, lane = int(words[1]), int(words[3])
        elif words and words[0].isdigit():
            steps[rank, lane, int(words[0])] = line.split(None, 1)[1]
    return steps


def _rows(run: Run) -> list[tuple[int, int]]:
    busy = {(rank, lane) for rank, lane, *_ in run.activities}
    return sorted(busy | {(rank, 0) for rank in range(len(run.ends))})


def _span(run: Run) -> float:
    ends = [a[5] for a in run.activities] + [t[4] for t in run.transfers]
    return max(ends, default=0) or 1e-9


def _time(seconds: float) -> str:
    if math.isinf(seconds):
        return "for ever"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def svg(run: Run, name: str, plan: str) -> str:
    """The run as SVG. Hovering over a step tells what it does.

    Args:
        name: of the plan.
        plan: its text.
    """
    rows, span, steps = _rows(run), _span(run), _steps(plan)
    y_of = {row: _TOP + i * _ROW for i, row in enumerate(rows)}
    first_lane = {rank: y_of[rank, lane] for rank, lane in reversed(rows)}

    def x_of(time: float) -> float:
        return _LEFT + time / span * _WIDTH

    links = sorted(run.links.items(), key=lambda item: -item[1])[:12]
    bottom = _TOP + len(rows) * _ROW
    height = bottom + 40 + 16 * len(links)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 20}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        "<defs><marker id='a' viewBox='0 0 6 6' refX='6' refY='3' markerWidth='6' markerHeight='6'"
        " orient='auto'><path d='M0 0L6 3L0 6z' fill='#555'/></marker></defs>",
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="18" font-size="14">{escape(name)}: {len(run.ends)} '
        f"ranks, {_time(run.seconds)}</text>",
    ]
    for i in range(6):
        x = _LEFT + i * _WIDTH / 5
        out.append(f'<line x1="{x:.1f}" y1="{_TOP - 6}" x2="{x:.1f}" y2="{bottom}" stroke="#eee"/>')
        out.append(
            f'<text x="{x:.1f}" y="{_TOP - 10}" text-anchor="middle" fill="#888">'
            f"{_time(i * span / 5) if i else 0}</text>"
        )
    for rank, lane in rows:
        row_name = f"rank {rank}" + (f".{lane}" if any(row == (rank, 1) for row in rows) else "")
        out.append(f'<text x="8" y="{y_of[rank, lane] + 15}">{row_name}</text>')
    for rank, lane, step, execution, start, end in run.activities:
        text = steps[rank, lane, step]
        width = max((end - start) / span * _WIDTH, 0.8)
        out.append(
            f'<rect x="{x_of(start):.2f}" y="{y_of[rank, lane] + 4}" width="{width:.2f}" '
            f'height="{_ROW - 8}" fill="{_COLOURS[_kind(text)]}" opacity="0.85">'
            f"<title>{escape(f'step {step}, execution {execution}: {text}')}</title></rect>"
        )
    for source, target, size, start, end in run.transfers:
        out.append(
            f'<line x1="{x_of(start):.2f}" y1="{first_lane[source] + _ROW / 2}" '
            f'x2="{x_of(end):.2f}" y2="{first_lane[target] + _ROW / 2}" stroke="#555" '
            f'stroke-width="0.7" marker-end="url(#a)"><title>{size} bytes from rank {source} to '
            f"rank {target}</title></line>"
        )
    for i, (link, busy) in enumerate(links):
        y = bottom + 20 + 16 * i
        share = busy / span
        out.append(f'<text x="8" y="{y + 10}">{escape(link)}</text>')
        out.append(
            f'<rect x="{_LEFT + 40}" y="{y}" width="{share * 200:.1f}" height="11" fill="#72b7b2"/>'
        )
        out.append(f'<text x="{_LEFT + 250}" y="{y + 10}">in use {share:.0%} of the time</text>')
    out.append("</svg>\n")
    return "\n".join(out)


def text(run: Run, name: str, plan: str, width: int = 72) -> str:
    """The run for a terminal: # moves, + reduces, . waits."""
    span, steps = _span(run), _steps(plan)
    marks = {"move": "#", "reduce": "+", "sync": "-"}
    lines = [f"{name}: {_time(run.seconds)}"]
    for row in _rows(run):
        cells = ["."] * width
        for rank, lane, step, _, start, end in run.activities:
            if (rank, lane) != row:
                continue
            begin = min(int(start / span * width), width - 1)
            stop = min(max(int(end / span * width), begin + 1), width)
            for i in range(begin, stop):
                cells[i] = marks[_kind(steps[rank, lane, step])]
        lines.append(f"{row[0]:>4}.{row[1]:<2} {''.join(cells)}")
    busiest = sorted(run.links.items(), key=lambda item: -item[1])[:3]
    lines += [f"  {link}: used {busy / span:.0%} of the time" for link, busy in busiest]
    lines += [f"  {stuck}" for stuck in run.stuck]
    return "\n".join(lines) + "\n"
