"""A time line for Perfetto (https://ui.perfetto.dev), in Chrome's trace event format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchcomms.cli.records.job import Communicator

_MESSAGES = 1000  # added to the number of a communicator, as the thread of its messages


def events(communicators: Sequence[Communicator], last: float | None = None) -> dict[str, Any]:
    """All ranks side by side, each communicator a thread of each. `last`: so many seconds."""
    out: list[dict[str, Any]] = []
    for index, communicator in enumerate(communicators):
        for r, rank in sorted(communicator.ranks.items()):
            out.append(
                _name("process_name", r, 0, f"rank {r} on {rank['host']}"),
            )
            out.append(_name("thread_name", r, index, communicator.name))
            out.append(_name("thread_name", r, index + _MESSAGES, f"{communicator.name}: messages"))
            for operation in rank["operations"]:
                end = operation["ended"] or communicator.now
                if last is not None and end < communicator.now - last * 1e9:
                    continue
                out.append(_event(communicator, rank, operation, index, end))
    return {"traceEvents": out, "displayTimeUnit": "ns"}


def _name(what: str, rank: int, thread: int, text: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": rank, "tid": thread, "args": {"name": text}}


def _event(
    communicator: Communicator,
    rank: dict[str, Any],
    operation: dict[str, Any],
    index: int,
    end: int,
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
        "cat": "message" if operation["message"] else "collective",
        "pid": rank["rank"],
        "tid": index + (_MESSAGES if operation["message"] else 0),
        "ts": (start + rank["realtime_offset"]) / 1000,
        "dur": max(end - start, 0) / 1000,
        "args": arguments,
    }
