"""Communication that a step waits for, and that could have run while the step computed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from statistics import median
from typing import Any

from torchcomms.cli.records.calls import collectives, named, verdict
from torchcomms.cli.records.job import Communicator

_MOST_OPERATIONS = 256  # that are looked at, the last ones
_LEAST_STEPS = 8  # that say something about a program
_LEAST_LOSS = 0.2  # of the time that passes
# Between two calls that follow one another, at most: so long, or so much of the time of the first.
_SHORT_NANOS = 100_000
_SHORT_SHARE = 0.1
_COMPUTING_NANOS = 1_000_000  # between two steps, at least

Operation = dict[str, Any]


def lost_overlap(communicator: Communicator) -> Iterable[dict[str, Any]]:
    """Ranks whose steps compute and then call several collectives that block, one after another.

    The program computes nothing between these calls, so that the data of the second one and of
    those after it was there before the first one was called. How much of their time could have been
    spent while the program computed is at most that time, and at most as long as it computed. For
    how long they wait for a rank that calls later does not count.
    """
    ranks = communicator.ranks
    if len(ranks) != communicator.size or len(ranks) < 2:
        return
    calls = {r: collectives(rank) for r, rank in ranks.items()}
    numbers = sorted(set.intersection(*(set(ops) for ops in calls.values())))[-_MOST_OPERATIONS:]
    if len(numbers) < 2 * _LEAST_STEPS:
        return
    begins = {
        number: max(ops[number]["called"] + ranks[r]["realtime_offset"] for r, ops in calls.items())
        for number in numbers
    }
    found: dict[int, tuple[float, list[int], list[int]]] = {}
    for r, ops in calls.items():
        offset = ranks[r]["realtime_offset"]
        own = [ops[number] for number in numbers]
        if any(op["ended"] == 0 for op in own):
            own = own[: next(i for i, op in enumerate(own) if op["ended"] == 0)]
        steps = list(_steps(own))
        if len(steps) < _LEAST_STEPS:
            continue
        lost = [
            min(computed, sum(max(op["ended"] + offset - begins[op["number"]], 0) for op in later))
            for computed, later in steps
        ]
        share = sum(lost) / max(own[-1]["ended"] - own[0]["called"], 1)
        if share >= _LEAST_LOSS:
            found[r] = (share, [computed for computed, _ in steps], [len(o) for _, o in steps])
    if not found:
        return
    loss = min(median(share for share, _, _ in found.values()), 1)
    computed = median(nanos for _, all_of, _ in found.values() for nanos in all_of) / 1e6
    count = round(median(n for _, _, all_of in found.values() for n in all_of)) + 1
    text = f"{named(found)} {'waits' if len(found) == 1 else 'wait'} {loss:.0%} of the time for "
    text += (
        f"communication that could have run before: after {computed:.3g} ms of computation come "
    )
    text += f"{count} calls that block, one after another; call with async_op=True as soon as the "
    text += "data is there, and wait later"
    yield verdict("lost_overlap", found, text, loss=round(loss, 3))


def _steps(operations: list[Operation]) -> Iterable[tuple[int, list[Operation]]]:
    """How long the program has computed, and then which calls have followed a first one at once."""
    computed, later = 0, list[Operation]()
    for before, operation in pairwise(operations):
        gap = operation["called"] - before["ended"]
        passed = before["ended"] - before["called"]
        if 0 <= gap <= max(_SHORT_NANOS, _SHORT_SHARE * passed):
            later.append(operation)
            continue
        if computed and later:
            yield computed, later
        # Called before the one before it has ended: the program does not wait for each.
        computed, later = (gap if gap >= _COMPUTING_NANOS else 0), []
    if computed and later:
        yield computed, later
