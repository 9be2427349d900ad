"""Which operation of one rank another one has waited for: the arrows of a time line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from torchcomms.cli.records.calls import collectives
from torchcomms.cli.records.job import Communicator

_LEAST_WAIT = 0.1  # of the time of a collective, that is worth an arrow


class End(NamedTuple):
    """A rank's operation."""

    rank: int
    operation: dict[str, Any]


def arrows(communicator: Communicator) -> Iterator[tuple[End, End]]:
    """From what was waited for to what waited."""
    yield from _of_collectives(communicator)
    yield from _of_messages(communicator)


def _of_collectives(communicator: Communicator) -> Iterator[tuple[End, End]]:
    calls = {r: collectives(rank) for r, rank in communicator.ranks.items()}
    for r, own in calls.items():
        for number, operation in own.items():
            awaited = operation["longest_for"]
            passed = operation["ended"] - operation["started"]
            if awaited is None or passed <= 0 or operation["longest_wait"] < _LEAST_WAIT * passed:
                continue
            other = calls.get(awaited, {}).get(number)
            if other is not None:
                yield End(awaited, other), End(r, operation)


def _of_messages(communicator: Communicator) -> Iterator[tuple[End, End]]:
    """Of a pair of ranks and a tag, messages are received in the order in which they are sent.

    Where older ones are no longer remembered the last send and the last receive that has ended
    belong together, or an earlier send if that one was called after the receive had ended.
    """
    sends: dict[tuple[int, int, int], list[End]] = defaultdict(list)
    receives: dict[tuple[int, int, int], list[End]] = defaultdict(list)
    forgets = False
    for r, rank in communicator.ranks.items():
        messages = [o for o in rank["operations"] if o["message"]]
        forgets |= len(messages) < rank["messages"]
        for operation in sorted(messages, key=lambda o: o["number"]):
            if operation["root"] is None or operation["root"] < 0:
                continue  # from any rank: nobody knows which
            if operation["kind"] == "send":
                sends[r, operation["root"], operation["tag"]].append(End(r, operation))
            elif operation["kind"] == "recv" and operation["ended"] and not operation["error"]:
                receives[operation["root"], r, operation["tag"]].append(End(r, operation))
    for key, received in receives.items():
        sent = sends[key]
        if forgets:
            ahead = next(
                (
                    n
                    for n in range(len(sent))
                    if all(
                        _at(communicator, s, "called") <= _at(communicator, t, "ended")
                        for s, t in zip(sent[-1 - n :: -1], reversed(received), strict=False)
                    )
                ),
                None,
            )
            if ahead is None:
                continue
            yield from zip(sent[-1 - ahead :: -1], reversed(received), strict=False)
        else:
            yield from zip(sent, received, strict=False)


def _at(communicator: Communicator, end: End, moment: str) -> int:
    return int(end.operation[moment]) + int(communicator.ranks[end.rank]["realtime_offset"])
