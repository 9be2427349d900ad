"""Clocks of several hosts, put right by what their ranks have recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torchcomms.cli.records.calls import collectives
from torchcomms.cli.records.job import Communicator

# None of these ends on any rank before it has been called on all.
_BARRIERS = (
    "barrier",
    "all_reduce",
    "all_gather",
    "all_gather_v",
    "reduce_scatter",
    "reduce_scatter_v",
    "all_to_all",
)


def host_of(rank: dict[str, Any]) -> str:
    """The name of a rank's host: without the process, which is part of what is recorded."""
    return str(rank["host"]).partition(" (pid ")[0]


def align(communicators: Sequence[Communicator]) -> None:
    """Changes `realtime_offset` of ranks, so that times of all hosts can be compared.

    CLOCK_REALTIME of two hosts is believed as far as the collectives that both have called allow:
    t nanoseconds from the end of a call on one host to its beginning on another one mean that the
    other one's clock is at least t ahead. Adds to each rank `clock_offset`, by which the clock of
    its host was ahead of that of the first rank's host, and `clock_error`, plus or minus what; None
    if no collective tells. Nanoseconds.
    """
    first = _first_host(communicators)
    for host in {host_of(rank) for c in communicators for rank in c.ranks.values()}:
        offset, error = (0, 0) if host == first else _offset(communicators, first, host)
        for communicator in communicators:
            for rank in communicator.ranks.values():
                if host_of(rank) == host:
                    rank["realtime_offset"] -= offset
                    rank["clock_offset"], rank["clock_error"] = offset, error


def _first_host(communicators: Sequence[Communicator]) -> str:
    """That of the lowest rank of the communicator with most ranks."""
    ranks = max((c.ranks for c in communicators), key=len, default={})
    return host_of(ranks[min(ranks)]) if ranks else ""


def _offset(communicators: Sequence[Communicator], first: str, host: str) -> tuple[int, int | None]:
    bounds = [b for c in communicators for b in _bounds(c, first, host)]
    if not bounds:
        return 0, None
    low, high = max(low for low, _ in bounds), min(high for _, high in bounds)
    if low > high:  # the clocks have drifted meanwhile
        low, high = high, low
        offset = (low + high) // 2
    else:
        offset = min(max(0, low), high)
    return offset, max(high - offset, offset - low)


def _bounds(communicator: Communicator, first: str, host: str) -> Iterable[tuple[int, int]]:
    """Of each collective: at least and at most by how much the clock of `host` can be ahead."""
    here, there = (
        [
            (collectives(rank), int(rank["realtime_offset"]))
            for rank in communicator.ranks.values()
            if host_of(rank) == one
        ]
        for one in (first, host)
    )
    if not here or not there:
        return
    for number in set.intersection(*(set(ops) for ops, _ in here + there)):
        ours = [(ops[number], offset) for ops, offset in here]
        theirs = [(ops[number], offset) for ops, offset in there]
        if not all(_meets(op) for op, _ in ours + theirs):
            continue
        yield (
            max(op["called"] + o for op, o in theirs) - min(op["ended"] + o for op, o in ours),
            min(op["ended"] + o for op, o in theirs) - max(op["called"] + o for op, o in ours),
        )


def _meets(operation: dict[str, Any]) -> bool:
    return (
        operation["kind"] in _BARRIERS
        and operation["ended"] > 0
        and operation["error"] is None
        and (operation["bytes"] > 0 or operation["kind"] == "barrier")
    )
