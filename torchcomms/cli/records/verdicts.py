"""What is wrong with a communicator, as data: see docs/troubleshooting.md for the fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from torchcomms.cli.records import processes
from torchcomms.cli.records.job import Communicator

# Whose counts belong to pairs of ranks, or to one rank.
_OWN_COUNTS = (
    "all_gather_v",
    "reduce_scatter_v",
    "all_to_all_v",
    "all_to_all_v_dynamic",
    "all_to_all_v_combine",
)
_SECOND = 1_000_000_000
_LEAST_OPERATIONS = 16  # that say something about who is late
_LEAST_SHARE = 0.7  # of operations in which a slow rank is the last
_LEAST_LOSS = 0.2  # of the time that passes
_LEAST_ARRIVED = 1_000_000  # bytes over a link that say something about it
_LEAST_SHARE_BUSY = 0.1  # of the time, in which a slow link is busy
_SLOWER = 4  # times, than the others


def collectives(rank: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """By number, from 1; that with which a communicator is made is none of the user's."""
    return {o["number"]: o for o in rank["operations"] if not o["message"] and o["number"] > 0}


def current(rank: dict[str, Any]) -> dict[str, Any] | None:
    """The operation in which a rank is."""
    if rank["state"] != "alive":
        return None
    running = [o for o in rank["operations"] if o["ended"] == 0]
    return min(running, key=lambda o: o["started"]) if running else None


def named(ranks: Iterable[int]) -> str:
    """ "rank 3", "ranks 1, 2 and 5"."""
    texts = [str(rank) for rank in sorted(ranks)]
    if len(texts) == 1:
        return f"rank {texts[0]}"
    if len(texts) > 8:
        return f"{len(texts)} ranks ({', '.join(texts[:6])}, ...)"
    return f"ranks {', '.join(texts[:-1])} and {texts[-1]}"


def _described(operation: dict[str, Any]) -> str:
    size = operation["bytes"]
    unit = "B"
    for bigger in ("KB", "MB", "GB"):
        if size < 10_000:
            break
        size, unit = size / 1000, bigger
    return f"{operation['kind']} #{operation['number']} ({size:.4g} {unit})"


def judge(communicator: Communicator, after: float = 1.0) -> list[dict[str, Any]]:
    """What is wrong, most telling first. Operations may take `after` seconds."""
    verdicts = [*_dead(communicator), *_different(communicator)]
    if not verdicts:
        verdicts = [*_missing(communicator, after), *_unmatched(communicator, after)]
    if not verdicts:
        verdicts = [*_failed(communicator), *_slow(communicator), *_slow_links(communicator)]
    return verdicts


def _waiting(communicator: Communicator) -> list[int]:
    return [r for r, rank in communicator.ranks.items() if current(rank) is not None]


def _verdict(kind: str, ranks: Iterable[int], text: str, **more: Any) -> dict[str, Any]:
    return {"verdict": kind, "ranks": sorted(ranks), "text": text, **more}


def _dead(communicator: Communicator) -> Iterable[dict[str, Any]]:
    for r, rank in sorted(communicator.ranks.items()):
        if rank["state"] != "dead":
            continue
        last = max(rank["operations"], key=lambda o: o["started"], default=None)
        text = f"rank {r} on {rank['host']} is dead"
        if last is not None:
            inside = "in" if last["ended"] == 0 else "after"
            text += f"; it died {inside} {_described(last)}"
        waiting = _waiting(communicator)
        if waiting:
            text += f"; {named(waiting)} {'waits' if len(waiting) == 1 else 'wait'}"
        yield _verdict("dead_process", [r], text, waiting=waiting)


def _different(communicator: Communicator) -> Iterable[dict[str, Any]]:
    calls = {r: collectives(rank) for r, rank in communicator.ranks.items()}
    for number in sorted(set().union(*calls.values())):
        here = {r: ops[number] for r, ops in calls.items() if number in ops}
        if len(here) < 2:
            continue
        (usual, most), *less = Counter(_agreed(o) for o in here.values()).most_common()
        if not less:
            continue
        # Of two that differ neither is the odd one.
        odd = {r: o for r, o in here.items() if _agreed(o) != usual or less[0][1] == most}
        sizes = all(_agreed(o)[:-1] == usual[:-1] for o in odd.values())
        alike: dict[tuple[Any, ...], list[int]] = {}
        for r in sorted(here, key=lambda r: (r not in odd, r)):
            alike.setdefault(_agreed(here[r]), []).append(r)
        texts = [
            f"{named(ranks)} {'calls' if len(ranks) == 1 else 'call'} {here[ranks[0]]['call']}"
            for ranks in alike.values()
        ]
        yield _verdict(
            "different_sizes" if sizes else "different_calls",
            odd,
            f"collective #{number} differs: {'; '.join(texts)}",
            number=number,
            calls={str(r): o["call"] for r, o in sorted(here.items())},
        )
        return


def _agreed(operation: dict[str, Any]) -> tuple[Any, ...]:
    """What has to be alike on all ranks, the size last."""
    if operation["kind"] in _OWN_COUNTS:
        return (operation["kind"], operation["type"], None)
    words = operation["call"].replace(f"{operation['count']} elements", "")
    return (operation["kind"], words, operation["count"])


def _missing(communicator: Communicator, after: float) -> Iterable[dict[str, Any]]:
    inside = {
        r: op
        for r, rank in communicator.ranks.items()
        for op in collectives(rank).values()
        if rank["state"] == "alive" and op["ended"] == 0
    }
    if not inside:
        return
    number = max(op["number"] for op in inside.values())
    longest = min((op for op in inside.values()), key=lambda op: op["started"])
    seconds = (communicator.now - longest["started"]) / _SECOND
    if seconds < after:
        return
    model = next(op for op in inside.values() if op["number"] == number)
    missing = [
        r
        for r, rank in communicator.ranks.items()
        if r not in inside and rank["collectives"] <= number
    ]
    left = [r for r in missing if communicator.ranks[r]["state"] == "left"]
    if left:
        text = f"{named(left)} left the communicator; {named(inside)} still in {_described(model)}"
        yield _verdict("left", left, text, number=number, waiting=sorted(inside))
        return
    if missing:
        places = {r: _where(communicator.ranks[r]) for r in missing}
        text = f"{named(missing)} {'has' if len(missing) == 1 else 'have'} not called "
        text += f"{_described(model)}"
        first = next((f"rank {r}: {lines[0]}" for r, lines in places.items() if lines), None)
        if first:
            text += f" ({first})"
        text += f"; {named(inside)} {'waits' if len(inside) == 1 else 'wait'} for {seconds:.1f} s"
        yield _verdict(
            "missing_rank",
            missing,
            text,
            number=number,
            seconds=round(seconds, 3),
            waiting=sorted(inside),
            where={str(r): lines for r, lines in places.items()},
        )
        return
    stopped = {r: _where(communicator.ranks[r]) for r in inside}
    stopped = {r: lines for r, lines in stopped.items() if lines and lines[0].startswith("stopped")}
    unseen = communicator.size - len(communicator.ranks)
    if stopped:
        text = f"{named(stopped)} {'is' if len(stopped) == 1 else 'are'} {min(stopped.values())[0]}"
        yield _verdict(
            "stopped",
            stopped,
            f"{text} in {_described(model)}",
            number=number,
            waiting=sorted(set(inside) - set(stopped)),
        )
    elif unseen > 0:
        text = f"{named(inside)} {'is' if len(inside) == 1 else 'are'} in {_described(model)} "
        text += f"for {seconds:.1f} s, and so is no rank of this host missing; {unseen} ranks of "
        text += "other hosts are not seen: look there"
        yield _verdict("missing_elsewhere", [], text, number=number, waiting=sorted(inside))


def _where(rank: dict[str, Any]) -> list[str]:
    if "where" in rank:  # of a file
        return list(rank["where"])
    return processes.where(rank["process"]) if rank["process"] else []


def _unmatched(communicator: Communicator, after: float) -> Iterable[dict[str, Any]]:
    """Messages whose other side does not come."""
    for r, rank in sorted(communicator.ranks.items()):
        for op in rank["operations"] if rank["state"] == "alive" else []:
            seconds = (communicator.now - op["started"]) / _SECOND
            if not op["message"] or op["ended"] or seconds < after:
                continue
            if op["kind"] not in ("send", "recv"):
                continue
            peer = communicator.ranks.get(op["root"])
            other = "recv" if op["kind"] == "send" else "send"
            theirs = peer["operations"] if peer is not None else []
            if peer is None or any(
                o["kind"] == other and o["root"] == r and o["ended"] == 0 for o in theirs
            ):
                continue
            text = f"rank {r} is in {op['call']} for {seconds:.1f} s; rank {op['root']} has not "
            text += f"called its {other}"
            yield _verdict(
                "missing_message", [op["root"]], text, waiting=[r], seconds=round(seconds, 3)
            )


def _failed(communicator: Communicator) -> Iterable[dict[str, Any]]:
    failed = {r: rank for r, rank in communicator.ranks.items() if rank["error"] is not None}
    if failed:
        first = failed[min(failed)]
        text = f"it is broken ({first['error']}): {first['failure']}"
        yield _verdict("failed", failed, text, error=first["error"])


def _slow(communicator: Communicator) -> Iterable[dict[str, Any]]:
    """A rank for which the others wait again and again, as it calls later than they do."""
    ranks = communicator.ranks
    if len(ranks) < 2:
        return
    calls = {r: collectives(rank) for r, rank in ranks.items()}
    common = sorted(set.intersection(*(set(ops) for ops in calls.values())))[-256:]
    if len(common) < _LEAST_OPERATIONS:
        return
    late: dict[int, list[int]] = {}
    for number in common:
        # Hosts have clocks of their own: as of CLOCK_REALTIME.
        times = sorted((_called(ranks[r], calls[r][number]), r) for r in ranks)
        (before, _), (last, who) = times[-2:]
        late.setdefault(who, []).append(last - before)
    first, end = (
        min(_called(ranks[r], calls[r][number]) for r in ranks)
        for number in (common[0], common[-1])
    )
    who = max(late, key=lambda r: sum(late[r]))
    loss = sum(late[who]) / max(end - first, 1)
    share = len(late[who]) / len(common)
    if share < _LEAST_SHARE or loss < _LEAST_LOSS:
        return
    text = f"rank {who} on {ranks[who]['host']} is slow: it was the last to call in "
    text += f"{len(late[who])} of {len(common)} collectives, by {median(late[who]) / 1e6:.3g} ms "
    text += f"in the median; the others wait for it {min(loss, 1):.0%} of the time"
    yield _verdict(
        "slow_rank", [who], text, confidence=round(share, 3), loss=round(min(loss, 1), 3)
    )


def _slow_links(communicator: Communicator) -> Iterable[dict[str, Any]]:
    """Ways to other hosts on which data is long on its way, compared with the others."""
    speeds: dict[tuple[int, int], float] = {}
    shares: dict[tuple[int, int], float] = {}
    for r, rank in communicator.ranks.items():
        passed = max(communicator.now - rank.get("since", 0), 1)
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
        yield _verdict(
            "slow_link",
            [r, peer],
            text,
            gbs=round(speed, 6),
            usual_gbs=round(median(others), 6),
            busy=round(shares[pair], 3),
        )


def _called(rank: dict[str, Any], operation: dict[str, Any]) -> int:
    return int(operation["called"]) + int(rank["realtime_offset"])


def state_of(communicator: Communicator, verdicts: Sequence[dict[str, Any]]) -> str:
    """idle, running, slow, stuck, failed or left."""
    kinds = {verdict["verdict"] for verdict in verdicts}
    if all(rank["state"] == "left" for rank in communicator.ranks.values()):
        return "left"
    if any(rank["error"] is not None for rank in communicator.ranks.values()):
        return "failed"
    if kinds - {"slow_rank", "slow_link"}:
        return "stuck"
    if kinds:
        return "slow"
    return "running" if _waiting(communicator) else "idle"
