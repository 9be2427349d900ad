"""Latency and bandwidth of all pairs as tables; which pairs are odd."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import NamedTuple

from torchcomms.cli.doctor.finding import BROKEN, SLOW
from torchcomms.cli.doctor.report import Pair, Report

_TIMES = 3.0  # so much slower than the median is odd
_SLACK_US = 20.0  # below this much more, latency is noise


class _Odd(NamedTuple):
    """What is much slower than the median of pairs of its kind: above and below which values."""

    latency_us: float = math.inf
    bandwidth_gbs: float = 0.0

    def is_late(self, pair: Pair) -> bool:
        return (pair.latency_us or 0) > self.latency_us

    def is_narrow(self, pair: Pair) -> bool:
        return (pair.bandwidth_gbs or math.inf) < self.bandwidth_gbs


def _odd(pairs: list[Pair]) -> dict[bool, _Odd]:
    """Of pairs of one host, and of others.

    The first go through shared memory, and are not compared with those between hosts. Of fewer than
    three pairs none is odd.
    """
    found = {}
    for same_host in (True, False):
        kind = [one for one in pairs if one.same_host is same_host and one.result != BROKEN]
        latencies = [one.latency_us for one in kind if one.latency_us is not None]
        bandwidths = [one.bandwidth_gbs for one in kind if one.bandwidth_gbs is not None]
        found[same_host] = _Odd()
        if len(latencies) >= 3 and len(bandwidths) >= 3:
            late = max(statistics.median(latencies) * _TIMES, _SLACK_US)
            found[same_host] = _Odd(late, statistics.median(bandwidths) / _TIMES)
    return found


def mark_odd(pairs: list[Pair]) -> None:
    """Calls a pair slow whose latency or bandwidth is odd."""
    odd = _odd(pairs)
    for one in pairs:
        of_kind = odd[one.same_host]
        if one.result != BROKEN and (of_kind.is_late(one) or of_kind.is_narrow(one)):
            one.result = SLOW


def _table(
    report: Report,
    title: str,
    value: Callable[[Pair], float | None],
    is_odd: Callable[[Pair], bool],
) -> list[str]:
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
                cells += f"{value(one):>8.3g}{'!' if is_odd(one) else ' '}"
        lines.append(f"  {names[row]:<{width}}{cells}".rstrip())
    return lines


def matrices(report: Report) -> list[str]:
    if not report.pairs:
        return []
    odd = _odd(report.pairs)
    lines = _table(
        report,
        "latency between ranks, µs",
        lambda one: one.latency_us,
        lambda one: odd[one.same_host].is_late(one),
    )
    lines += _table(
        report,
        "bandwidth between ranks, GB/s",
        lambda one: one.bandwidth_gbs,
        lambda one: odd[one.same_host].is_narrow(one),
    )
    marks = []
    if any(one.result == SLOW for one in report.pairs):
        marks.append("! is odd")
    if any(one.result == BROKEN for one in report.pairs):
        marks.append("X cannot talk")
    return [*lines, *([f"  {'; '.join(marks)}"] if marks else [])]
