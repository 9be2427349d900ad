"""`torchcomms top`: what every rank is in, again and again."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Any

from torchcomms.cli.records import terminal
from torchcomms.cli.records.calls import called, collectives, current, messages, users
from torchcomms.cli.records.job import Communicator
from torchcomms.cli.records.slow import slowest
from torchcomms.cli.records.traffic import Way, busiest, traffic
from torchcomms.cli.records.verdicts import judge

_RATE_NANOS = 1_000_000_000
_SLOWEST_NANOS = 60 * _RATE_NANOS
_CLEAR = "\x1b[H\x1b[2J"
# With their widths. Behind them comes what a rank is in.
_COLUMNS = {
    "rank": 5,
    "pid": 8,
    "calls": 9,
    "ops/s": 6,
    "MB/s": 9,
    "waits": 6,
    "seconds": 8,
    "for": 5,
}
_LEAST_IN = 15  # columns for what a rank is in
_FIRST_TO_GO = ("calls", "MB/s", "ops/s", "pid", "waits")  # where a terminal is narrower


def _columns(width: int) -> dict[str, int]:
    shown = dict(_COLUMNS)
    for name in _FIRST_TO_GO:
        if sum(shown.values()) + len(shown) + 1 + _LEAST_IN <= width:
            break
        del shown[name]
    return shown


def _line(columns: dict[str, int], cells: dict[str, str], inside: str) -> str:
    return " ".join(f"{cells[name]:>{width}}" for name, width in columns.items()) + f"  {inside}"


def _waited(operation: dict[str, Any], begin: int, now: int) -> int:
    """How long it has waited since `begin`, at most: of waits that are over the sum is known."""
    end, waits = int(operation["ended"]) or now, 0
    if operation["ended"] == 0 and operation["waits_for"] is not None:
        end = int(operation["waits_since"])
        waits = now - max(end, begin)
    over = end - max(int(operation["started"]), begin)
    return waits + max(min(int(operation["waited"]), over), 0)


def _begin(rank: dict[str, Any]) -> int:
    """A second ago, or later where what is recorded does not go back so far."""
    now = int(rank["now"])
    begin = now - _RATE_NANOS
    for first, operations in (
        (1, list(collectives(rank).values())),
        (0, messages(rank)),
    ):
        ended = [int(o["ended"]) for o in operations if o["ended"]]
        if ended and min(o["number"] for o in operations) > first:
            begin = max(begin, min(ended))
    return min(begin, now - 1)


def _row(rank: dict[str, Any], rate: float | None, columns: dict[str, int]) -> str:
    """`rate`: calls a second, where it is known from what has been counted."""
    now, begin = rank["now"], _begin(rank)
    seconds = (now - begin) / 1e9
    about = "~" if begin > now - _RATE_NANOS else ""
    recent = [o for o in users(rank) if o["ended"] > begin]
    calls = f"{about}{len(recent) / seconds:.0f}" if rate is None else f"{rate:.0f}"
    lives = rank["state"] == "alive"
    waited = sum(
        _waited(o, begin, now)
        for o in rank["operations"]
        if (o["ended"] > begin if o["ended"] else lives)
    )
    waits = f"{about}{min(max(waited / (now - begin), 0), 1):.0%}"
    operation = current(rank)
    what, since, whom = rank["state"] if rank["state"] != "alive" else "", "", ""
    if operation is not None:
        what = called(operation)
        since = f"{(now - operation['started']) / 1e9:.2f}"
        if operation["waits_for"] is not None:
            whom = "any" if operation["waits_for"] < 0 else str(operation["waits_for"])
    moved = f"{about}{sum(o['bytes'] for o in recent) / 1e6 / seconds:.1f}"
    cells = (rank["rank"], rank["pid"], rank["collectives"], calls, moved, waits, since, whom)
    return _line(columns, dict(zip(_COLUMNS, map(str, cells), strict=True)), what)


class Rates:
    """What ranks have called, and what has gone between them, since the last look."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, dict[Way, int]]] = {}
        self._calls: dict[tuple[str, int], tuple[tuple[Any, ...], int, int]] = {}

    def calls(self, communicator: Communicator, rank: dict[str, Any]) -> float | None:
        """Operations of a rank, a second; None the first time."""
        key = communicator.group, rank["rank"]
        process = rank["host"], rank["pid"], rank["process_start"]
        now = int(rank["now"])
        count = sum(int(rank.get(what, 0)) for what in ("collectives", "messages", "replayed"))
        before = self._calls.get(key)
        self._calls[key] = process, now, count
        if before is None or before[0] != process or before[1] >= now:
            return None
        return max(count - before[2], 0) / ((now - before[1]) / 1e9)

    def of(self, communicator: Communicator) -> str:
        """The fastest ways, for people; empty the first time."""
        now = traffic(communicator)
        at, before = self._last.get(communicator.group, (communicator.now, now))
        self._last[communicator.group] = (communicator.now, now)
        passed = (communicator.now - at) / 1e9
        return "   ".join(busiest(before, now, passed)) if passed > 0 else ""


def screen(
    communicators: Sequence[Communicator], after: float, rates: Rates, width: int = 200
) -> str:
    lines = []
    columns = _columns(width)
    for communicator in communicators:
        lines.append(f"{communicator.name}: {len(communicator.ranks)} of {communicator.size} ranks")
        lines.append(_line(columns, dict(zip(_COLUMNS, _COLUMNS, strict=True)), "in"))
        for _, rank in sorted(communicator.ranks.items()):
            lines.append(_row(rank, rates.calls(communicator, rank), columns))
        late = slowest(communicator, _SLOWEST_NANOS)
        if late is not None:
            of = "minute" if late.is_all else f"{late.calls} calls"
            lines.append(
                f"  slowest of the last {of}: rank {late.rank}, last in {late.last} of {late.calls}"
            )
        fastest = rates.of(communicator)
        if fastest:
            lines.append(f"  MB/s: {fastest}")
        lines = [line[:width] for line in lines]
        for verdict in judge(communicator, after, communicators):
            lines += textwrap.wrap(f"  ! {verdict['text']}", width, subsequent_indent="    ")
        lines.append("")
    return "\n".join(map(terminal.printable, lines))


def watch(look: Callable[[], str | None], seconds: float, times: int, *, as_screen: bool) -> None:
    """Prints what `look` says every so many seconds, until that is None; 0 `times`: or until the
    user ends it."""
    clear = _CLEAR if as_screen and sys.stdout.isatty() else ""
    done = 0
    while (text := look()) is not None:
        print(clear + text, flush=True)
        done += 1
        if done == times:
            return
        time.sleep(seconds)
