"""Latency and bandwidth of all pairs as tables; which pairs are odd."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from torchcomms.cli.doctor.finding import BROKEN, SLOW
from torchcomms.cli.doctor.report import Pair, Report

_TIMES = 3.0  # so much slower than the median is odd
_SLACK_US = 20.0  # below this much more, latency is noise


def mark_odd(pairs: list[Pair]) -> None:
    """Calls a pair slow that is much slower than the median of those of its kind.

    Pairs of one host go through shared memory, and are not compared with those between hosts.
    Of fewer than three pairs none is odd.
    """
    for same_host in (True, False):
        kind = [one for one in pairs if one.same_host is same_host and one.result != BROKEN]
        latencies = [one.latency_us for one in kind if one.latency_us is not None]
        bandwidths = [one.bandwidth_gbs for one in kind if one.bandwidth_gbs is not None]
        if len(latencies) < 3 or len(bandwidths) < 3:
            continue
        late = max(statistics.median(latencies) * _TIMES, _SLACK_US)
        narrow = statistics.median(bandwidths) / _TIMES
        for one in kind:
            if (one.latency_us or 0) > late or (one.bandwidth_gbs or narrow) < narrow:
                one.result = SLOW


def _table(report: Report, title: str, value: Callable[[Pair], float | None]) -> list[str]:
    pairs = {(one.a, one.b): one for one in report.pairs}
    ranks = sorted({rank for pair in pairs for rank in pair})
    host = {place.rank: place.host for place in report.places}
    names = {rank: f"{rank} {host.get(rank, '?')}" for rank in ranks}
    width = max(len(name) for name in names.values())
    lines = ["", title, "  " + " " * width + "".join(f"{rank:>9}" for rank in ranks)]
    for row in ranks:
        cells = ""
        for column in ranks:
            one = pairs.get((min(row, column), max(row, column)))
            if one is None:
                cells += f"{'-':>9}"
            elif one.result == BROKEN or value(one) is None:
                cells += f"{'X':>9}"
            else:
                cells += f"{value(one):>8.3g}{'!' if one.result == SLOW else ' '}"
        lines.append(f"  {names[row]:<{width}}{cells}".rstrip())
    return lines


def matrices(report: Report) -> list[str]:
    if not report.pairs:
        return []
    lines = _table(report, "latency between ranks, µs", lambda one: one.latency_us)
    lines += _table(report, "bandwidth between ranks, GB/s", lambda one: one.bandwidth_gbs)
    marks = []
    if any(one.result == SLOW for one in report.pairs):
        marks.append("! is odd")
    if any(one.result == BROKEN for one in report.pairs):
        marks.append("X cannot talk")
    return [*lines, *([f"  {'; '.join(marks)}"] if marks else [])]
