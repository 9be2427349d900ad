"""Which operation of one rank another one has waited for: the arrows of a time line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from torchcomms.cli.records.calls import collectives, messages, window_and_number
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
    yield from _of_windows(communicator)


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
        own = messages(rank)
        forgets |= len(own) < rank["messages"]
        for operation in own:
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


def _of_windows(communicator: Communicator) -> Iterator[tuple[End, End]]:
    """To waits for a signal: from the last put before that signal, or from the signal itself.

    Signals that are counted have numbers. Of others, which set a word, it is the last one before
    the wait has ended.
    """
    counted: dict[tuple[int, int, int], End] = {}  # by sender, receiver and tag
    words: dict[tuple[int, int, int], list[tuple[int, End]]] = defaultdict(list)
    for r, rank in communicator.ranks.items():
        puts: dict[tuple[int, int], End] = {}  # by receiver and window; since the last signal
        for operation in messages(rank):
            own, peer = End(r, operation), operation["root"]
            window, number = window_and_number(operation)
            if operation["kind"] == "put":
                puts[peer, window] = own
            elif operation["kind"] == "signal":
                source = puts.pop((peer, window), own)
                if operation["count"] > 0:
                    at = _at(communicator, own, "called")
                    words[peer, operation["count"], window].append((at, source))
                elif number > 0:
                    counted[r, peer, operation["tag"]] = source
    for r, rank in communicator.ranks.items():
        for operation in messages(rank):
            if operation["kind"] != "wait_signal" or not operation["ended"] or operation["error"]:
                continue
            own, (window, number) = End(r, operation), window_and_number(operation)
            if operation["count"] > 0:
                until = _at(communicator, own, "ended")
                before = [w for w in words[r, operation["count"], window] if w[0] <= until]
                if before:
                    yield max(before, key=lambda w: w[0])[1], own
            elif number > 0:
                sender = counted.get((operation["root"], r, operation["tag"]))
                if sender is not None:
                    yield sender, own


def _at(communicator: Communicator, end: End, moment: str) -> int:
    return int(end.operation[moment]) + int(communicator.ranks[end.rank]["realtime_offset"])
