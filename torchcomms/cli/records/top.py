"""`torchcomms top`: what every rank is in, again and again."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Any

from torchcomms.cli.records import terminal
from torchcomms.cli.records.calls import collectives, current
from torchcomms.cli.records.job import Communicator
from torchcomms.cli.records.slow import slowest
from torchcomms.cli.records.traffic import Way, busiest, traffic
from torchcomms.cli.records.verdicts import judge

_RATE_NANOS = 1_000_000_000
_SLOWEST_NANOS = 60 * _RATE_NANOS
_CLEAR = "\x1b[H\x1b[2J"


def _row(rank: dict[str, Any]) -> str:
    now = rank["now"]
    recent = [o for o in collectives(rank).values() if o["ended"] > now - _RATE_NANOS]
    waited = sum(o["waited"] for o in recent)
    operation = current(rank)
    what, since, whom = rank["state"] if rank["state"] != "alive" else "", "", ""
    if operation is not None:
        what = operation["call"]
        since = f"{(now - operation['started']) / 1e9:.2f}"
        if operation["waits_for"] is not None:
            whom = "any" if operation["waits_for"] < 0 else str(operation["waits_for"])
    rate = f"{sum(o['bytes'] for o in recent) / 1e6:.1f}"
    return (
        f"{rank['rank']:>5} {rank['pid']:>8} {rank['collectives']:>9} {len(recent):>6} {rate:>9} "
        f"{waited / _RATE_NANOS:>6.0%} {since:>8} {whom:>5}  {what}"
    )


class Rates:
    """What has gone between ranks since the last look."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, dict[Way, int]]] = {}

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
    for communicator in communicators:
        lines.append(f"{communicator.name}: {len(communicator.ranks)} of {communicator.size} ranks")
        lines.append(" rank      pid     calls  ops/s      MB/s  waits  seconds   for  in")
        for _, rank in sorted(communicator.ranks.items()):
            lines.append(_row(rank))
        late = slowest(communicator, _SLOWEST_NANOS)
        if late is not None:
            who, last, calls = late
            lines.append(f"  slowest of the last minute: rank {who}, last in {last} of {calls}")
        fastest = rates.of(communicator)
        if fastest:
            lines.append(f"  MB/s: {fastest}")
        lines = [line[:width] for line in lines]
        for verdict in judge(communicator, after, communicators):
            lines += textwrap.wrap(f"  ! {verdict['text']}", width, subsequent_indent="    ")
        lines.append("")
    return "\n".join(map(terminal.printable, lines))


def watch(look: Callable[[], str], seconds: float, times: int, *, as_screen: bool) -> None:
    """Prints what `look` says every so many seconds; 0 `times`: until the user ends it."""
    clear = _CLEAR if as_screen and sys.stdout.isatty() else ""
    done = 0
    while True:
        print(clear + look(), flush=True)
        done += 1
        if done == times:
            return
        time.sleep(seconds)
