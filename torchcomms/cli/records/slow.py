"""What makes a communicator slow, where nothing is wrong: ranks, links, and how calls are made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

from torchcomms.cli.records.calls import collectives, verdict
from torchcomms.cli.records.job import Communicator

_LEAST_OPERATIONS = 16  # that say something about who is late
_MOST_OPERATIONS = 256  # that are looked at, the last ones
_LEAST_SHARE = 0.7  # of operations in which a slow rank is the last
_LEAST_LOSS = 0.2  # of the time that passes
_LEAST_ARRIVED = 1_000_000  # bytes over a link that say something about it
_LEAST_SHARE_BUSY = 0.1  # of the time, in which a slow link is busy
_SLOWER = 4  # times, than the others
_LEAST_SHARE_EXCHANGED = 0.1  # of the time, that goes into exchanges which are uneven
_UNEVEN = 2  # times, than the mean

_EXCHANGES = ("all_to_all_v", "all_to_all_v_dynamic", "all_to_all_v_combine")


def slow(communicator: Communicator) -> list[dict[str, Any]]:
    return [*_ranks(communicator), *_links(communicator), *_exchanges(communicator)]


def _called(rank: dict[str, Any], operation: dict[str, Any]) -> int:
    # Hosts have clocks of their own: as of CLOCK_REALTIME.
    return int(operation["called"]) + int(rank["realtime_offset"])


def _common(communicator: Communicator) -> dict[int, dict[int, dict[str, Any]]]:
    """By number, the last collectives that all ranks have called: by rank."""
    calls = {r: collectives(rank) for r, rank in communicator.ranks.items()}
    if len(calls) < 2:
        return {}
    numbers = sorted(set.intersection(*(set(ops) for ops in calls.values())))[-_MOST_OPERATIONS:]
    return {number: {r: ops[number] for r, ops in calls.items()} for number in numbers}


class Slowest(NamedTuple):
    """The rank for which the others have waited most."""

    rank: int
    last: int
    """In how many calls it was the last."""
    calls: int
    """Of how many."""
    is_all: bool
    """Whether these are all calls of the time that was asked for."""


def slowest(communicator: Communicator, nanos: int) -> Slowest | None:
    """Of the last so many nanoseconds, or of the last calls where these are more than are looked
    at."""
    delays: dict[int, list[int]] = defaultdict(list)
    common = _common(communicator)
    is_all = 1 in common
    for ops in common.values():
        times = sorted((_called(communicator.ranks[r], op), r) for r, op in ops.items())
        some = times[-1][1]
        if ops[some]["called"] >= communicator.ranks[some]["now"] - nanos:
            delays[times[-1][1]].append(times[-1][0] - times[-2][0])
        else:
            is_all = True  # some are older
    if not delays:
        return None
    who = max(delays, key=lambda r: sum(delays[r]))
    return Slowest(who, len(delays[who]), sum(map(len, delays.values())), is_all)


def _ranks(communicator: Communicator) -> Iterable[dict[str, Any]]:
    """A rank for which the others wait again and again, as it calls later than they do: always, or
    in one phase of what the ranks repeat, which is one call after another one."""
    ranks = communicator.ranks
    common = _common(communicator)
    if len(common) < _LEAST_OPERATIONS:
        return
    times = {
        number: sorted((_called(ranks[r], op), r) for r, op in ops.items())
        for number, ops in common.items()
    }
    numbers = sorted(common)
    span = max(times[numbers[-1]][0][0] - times[numbers[0]][0][0], 1)
    some = min(ranks)
    phases: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number in numbers:
        before = common.get(number - 1)
        after = before[some]["call"] if before is not None else ""
        phases[after, common[number][some]["call"]].append(number)

    def late(among: Sequence[int]) -> tuple[int, list[int]]:
        """Who makes the others wait most, and how much in each call in which it is the last."""
        by_rank: dict[int, list[int]] = defaultdict(list)
        for number in among:
            (before, _), (last, who) = times[number][-2:]
            by_rank[who].append(last - before)
        who = max(by_rank, key=lambda r: sum(by_rank[r]))
        return who, by_rank[who]

    who, delays = late(numbers)
    found = {who: (len(numbers), delays)}
    if not _is_telling(len(numbers), delays, span):
        found = {}
        for among in phases.values():
            who, delays = late(among)
            if _is_telling(len(among), delays, span):
                calls, before_that = found.get(who, (0, []))
                found[who] = (calls + len(among), before_that + delays)
    for who, (calls, delays) in found.items():
        own = [
            (after, call)
            for (after, call), among in phases.items()
            if late(among)[0] == who and _is_telling(len(among), late(among)[1], span)
        ]
        loss = min(sum(delays) / span, 1)
        text = f"rank {who} on {ranks[who]['host']} is slow: it was the last to call in "
        text += f"{len(delays)} of {calls} collectives"
        if calls < len(numbers):
            text += ", those of " + "; ".join(
                call + (f" after {after}" if after else "") for after, call in own
            )
        text += f", by {median(delays) / 1e6:.3g} ms in the median; the others wait for it "
        text += f"{loss:.0%} of the time"
        yield verdict(
            "slow_rank",
            [who],
            text,
            confidence=round(len(delays) / calls, 3),
            loss=round(loss, 3),
            phases=[{"after": after, "call": call} for after, call in own],
        )


def _is_telling(calls: int, delays: Sequence[int], span: int) -> bool:
    return (
        calls >= _LEAST_OPERATIONS
        and len(delays) >= _LEAST_SHARE * calls
        and sum(delays) >= _LEAST_LOSS * span
    )


def _links(communicator: Communicator) -> Iterable[dict[str, Any]]:
    """Ways to other hosts on which data is long on its way, compared with the others."""
    speeds: dict[tuple[int, int], float] = {}
    shares: dict[tuple[int, int], float] = {}
    for r, rank in communicator.ranks.items():
        passed = max(rank["now"] - rank.get("since", 0), 1)
        for link in rank.get("links", []):
            if link["arrived"] < _LEAST_ARRIVED or link["busy"] == 0:
                continue
            pair = (r, int(link["peer"]))
            shares[pair] = min(link["busy"] / passed, 1)
            speeds[pair] = link["arrived"] / link["busy"]  # bytes per nanosecond
    for pair, speed in sorted(speeds.items()):
        others = [other for key, other in speeds.items() if key != pair]
        if len(others) < 2 or shares[pair] < _LEAST_SHARE_BUSY or speed * _SLOWER > median(others):
            continue
        r, peer = pair
        known = communicator.ranks.get(peer)
        there = f" on {known['host']}" if known is not None else ""
        text = (
            f"the link from rank {r} on {communicator.ranks[r]['host']} to rank {peer}{there} is "
        )
        text += (
            f"slow: {speed:.3g} GB/s, and {median(others):.3g} GB/s in the median of the others; "
        )
        text += f"it is busy {shares[pair]:.0%} of the time"
        yield verdict(
            "slow_link",
            [r, peer],
            text,
            gbs=round(speed, 6),
            usual_gbs=round(median(others), 6),
            busy=round(shares[pair], 3),
        )


def _exchanges(communicator: Communicator) -> Iterable[dict[str, Any]]:
    """Uneven exchanges: all ranks wait for the one that sends or gets most."""
    if len(communicator.ranks) != communicator.size:
        return
    uneven: dict[tuple[int, str], list[float]] = defaultdict(list)
    common = _common(communicator)
    calls = 0
    nanos = 0
    for ops in common.values():
        if any(op["kind"] not in _EXCHANGES or not op["ended"] for op in ops.values()):
            continue
        calls += 1
        nanos += max(op["ended"] - op["started"] for op in ops.values())
        worst = max(
            (op.get(way, 0) * len(ops) / max(sum(o.get(way, 0) for o in ops.values()), 1), r, way)
            for r, op in ops.items()
            for way in ("bytes", "received")
        )
        if worst[0] >= _UNEVEN:
            uneven[worst[1], worst[2]].append(worst[0])
    if calls < _LEAST_OPERATIONS:
        return
    some = [op for ops in common.values() for op in ops.values()]
    span = max(max(op["ended"] for op in some) - min(op["called"] for op in some), 1)
    if nanos < _LEAST_SHARE_EXCHANGED * span:
        return
    for (rank, way), ratios in sorted(uneven.items()):
        if len(ratios) < _LEAST_SHARE * calls:
            continue
        does = "sends" if way == "bytes" else "gets"
        yield verdict(
            "imbalance",
            [rank],
            f"rank {rank} {does} {median(ratios):.3g} times what ranks {does[:-1]} in the mean, in "
            f"{len(ratios)} of {calls} all_to_all_v, which take {min(nanos / span, 1):.0%} of the "
            "time",
            ratio=round(median(ratios), 3),
            share=round(min(nanos / span, 1), 3),
            way="sent" if way == "bytes" else "received",
        )
