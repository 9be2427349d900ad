"""A time line for Perfetto (https://ui.perfetto.dev), in Chrome's trace event format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchcomms.cli.records.arrows import End, arrows
from torchcomms.cli.records.calls import operations
from torchcomms.cli.records.clocks import host_of
from torchcomms.cli.records.job import Communicator, process_of, world_numbers

# Added to the number of a communicator: of what the thread is, and what is between rows.
_THREADS = {"collective": 0, "message": 1000, "replay": 2000}
_ROW = 3000


def events(communicators: Sequence[Communicator], last: float | None = None) -> dict[str, Any]:
    """All processes side by side, by their rank in the largest communicator; each communicator is a
    thread of each, or several where operations overlap. `last`: so many seconds."""
    # Times are written as floating-point microseconds: since 1970 they would not be exact.
    since = min(
        (
            operation["started"] + rank["realtime_offset"]
            for communicator in communicators
            for rank in communicator.ranks.values()
            for operation in operations(rank)
        ),
        default=0,
    )
    tracks = _tracks(communicators)
    hosts = {
        tracks[index][r]: rank["host"]
        for index, communicator in enumerate(communicators)
        for r, rank in communicator.ranks.items()
    }
    out = [
        _name("process_name", track, 0, f"rank {track} on {host}")
        for track, host in sorted(hosts.items())
    ]
    arrow = 0
    for index, communicator in enumerate(communicators):
        places: dict[tuple[int, bool, int], tuple[int, int]] = {}  # of what is shown
        for r, rank in sorted(communicator.ranks.items()):
            track = tracks[index][r]
            name = communicator.name if r == track else f"{communicator.name}: rank {r}"
            ends: dict[str, list[int]] = {kind: [] for kind in _THREADS}  # of the last in each row
            for operation in sorted(operations(rank), key=lambda o: int(o["started"])):
                end = operation["ended"] or rank["now"]
                if last is not None and end < rank["now"] - last * 1e9:
                    continue
                kind = kind_of(operation)
                row = _row(ends[kind], int(operation["started"]), int(end))
                place = (track, index + _THREADS[kind] + _ROW * row)
                out.append(_event(rank, operation, place, end, since))
                if kind != "replay":
                    places[_key(End(r, operation))] = place
            threads = {"collective": name, "message": f"{name}: messages"}
            if ends["replay"]:
                threads["replay"] = f"{name}: replays"
            for kind, what in threads.items():
                for row in range(max(len(ends[kind]), 1)):
                    thread = index + _THREADS[kind] + _ROW * row
                    text = what if row == 0 else f"{what} ({row + 1})"
                    out.append(_name("thread_name", track, thread, text))
        for source, target in arrows(communicator):
            if _key(source) in places and _key(target) in places:
                arrow += 1
                for tip, phase in ((source, "s"), (target, "f")):
                    rank = communicator.ranks[tip.rank]
                    event = _tip(rank, tip.operation, places[_key(tip)], since, phase == "f")
                    out.append(event | {"ph": phase, "id": arrow})
    clocks = {
        host_of(rank): {"offset_nanos": rank["clock_offset"], "error_nanos": rank["clock_error"]}
        for communicator in communicators
        for rank in communicator.ranks.values()
        if "clock_offset" in rank
    }
    other = {"since_nanos": since, "clocks": clocks}  # of the first host's CLOCK_REALTIME
    return {"traceEvents": out, "displayTimeUnit": "ns", "otherData": other}


def _tracks(communicators: Sequence[Communicator]) -> list[dict[int, int]]:
    """Of each communicator, the track of each rank: that of its process in the largest one."""
    if not communicators:
        return []
    numbers = world_numbers(communicators)
    largest = max(communicators, key=lambda c: c.size)
    return [
        {r: r if one is largest else numbers[process_of(rank)] for r, rank in one.ranks.items()}
        for one in communicators
    ]


def _name(what: str, track: int, thread: int, text: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": track, "tid": thread, "args": {"name": text}}


def kind_of(operation: dict[str, Any]) -> str:
    """collective, message (also of windows) or replay."""
    if operation.get("replay"):
        return "replay"
    return "message" if operation["message"] else "collective"


def _key(end: End) -> tuple[int, bool, int]:
    return end.rank, end.operation["message"], end.operation["number"]


def _row(ends: list[int], start: int, end: int) -> int:
    """The first row that is free: on one thread Perfetto drops what overlaps, and takes what lies
    in something else for a part of it. `ends` are those of the rows so far."""
    row = next((i for i, busy in enumerate(ends) if busy <= start), len(ends))
    ends[row : row + 1] = [max(end, start)]
    return row


def _tip(
    rank: dict[str, Any],
    operation: dict[str, Any],
    place: tuple[int, int],
    since: int,
    is_target: bool,
) -> dict[str, Any]:
    """One end of an arrow: the start of what was waited for, or the end of what waited, inside."""
    at = max(operation["ended"] - 1, operation["started"]) if is_target else operation["started"]
    event = {
        "name": "waits for",
        "cat": "wait",
        "pid": place[0],
        "tid": place[1],
        "ts": (at + rank["realtime_offset"] - since) / 1000,
    }
    return event | {"bp": "e"} if is_target else event


def _event(
    rank: dict[str, Any], operation: dict[str, Any], place: tuple[int, int], end: int, since: int
) -> dict[str, Any]:
    start = operation["started"]
    arguments = {
        key: operation[key]
        for key in ("call", "number", "bytes", "algorithm", "why", "longest_for", "error")
        if operation[key] not in (None, "")
    }
    arguments["queued_us"] = (start - operation["called"]) / 1000
    arguments["waited_us"] = operation["waited"] / 1000
    if not operation["ended"]:
        arguments["unfinished"] = True
    return {
        "ph": "X",
        "name": operation["kind"],
        "cat": kind_of(operation),
        "pid": place[0],
        "tid": place[1],
        "ts": (start + rank["realtime_offset"] - since) / 1000,
        "dur": max(end - start, 0) / 1000,
        "args": arguments,
    }
