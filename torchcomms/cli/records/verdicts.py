"""What is wrong with a communicator, as data: see docs/troubleshooting.md for the fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from torchcomms.cli.records import processes
from torchcomms.cli.records.calls import (
    called,
    collectives,
    current,
    messages,
    named,
    operations,
    replays,
    verdict,
    window_and_number,
)
from torchcomms.cli.records.clocks import host_of
from torchcomms.cli.records.job import Communicator
from torchcomms.cli.records.overlap import lost_overlap
from torchcomms.cli.records.preparation import preparation
from torchcomms.cli.records.slow import slow

# Whose counts belong to pairs of ranks, or to one rank.
_OWN_COUNTS = (
    "all_gather_v",
    "reduce_scatter_v",
    "all_to_all_v",
    "all_to_all_v_dynamic",
    "all_to_all_v_combine",
)
# No rank ends one of these before every rank is in it.
_MEETINGS = ("all_reduce", "barrier", "all_gather", "reduce_scatter", "all_to_all")
_SECOND = 1_000_000_000
_SLOW = {"slow_rank", "slow_link", "imbalance", "lost_overlap", "preparation"}


def _described(operation: dict[str, Any]) -> str:
    size = operation["bytes"]
    unit = "B"
    for bigger in ("KB", "MB", "GB"):
        if size < 10_000:
            break
        size, unit = size / 1000, bigger
    return f"{operation['kind']} #{operation['number']} ({size:.4g} {unit})"


def judge(
    communicator: Communicator, after: float = 1.0, job: Sequence[Communicator] = ()
) -> list[dict[str, Any]]:
    """What is wrong, most telling first. Operations may take `after` seconds. `job`: all
    communicators, as a rank that is in an operation of one cannot call those of another."""
    verdicts = [*_dead(communicator), *_different(communicator)]
    if not verdicts:
        verdicts = [
            *_missing(communicator, after, job),
            *_missing_replay(communicator, after, job),
            *_unmatched(communicator, after),
            *_unsignalled(communicator, after),
        ]
    if not verdicts:
        verdicts = [*_failed(communicator), *slow(communicator), *lost_overlap(communicator)]
        verdicts += preparation(communicator)
    return verdicts


def _waiting(communicator: Communicator) -> list[int]:
    return [r for r, rank in communicator.ranks.items() if current(rank) is not None]


def _dead(communicator: Communicator) -> Iterable[dict[str, Any]]:
    for r, rank in sorted(communicator.ranks.items()):
        if rank["state"] != "dead":
            continue
        last = max(operations(rank), key=lambda o: o["started"], default=None)
        text = f"rank {r} on {rank['host']} is dead"
        if last is not None:
            inside = "in" if last["ended"] == 0 else "after"
            inside += " a replay of" if last.get("replay") else ""
            text += f"; it died {inside} {_described(last)}"
        waiting = _waiting(communicator)
        if waiting:
            text += f"; {named(waiting)} {'waits' if len(waiting) == 1 else 'wait'}"
        yield verdict("dead_process", [r], text, waiting=waiting)


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
        yield verdict(
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


def _elsewhere(communicator: Communicator, job: Sequence[Communicator]) -> dict[int, str]:
    """The operations of other communicators in which ranks of this one are."""
    operations = {
        (rank["host"], rank["pid"]): f"in {_described(operation)} of {other.name}"
        for other in job
        if other.group != communicator.group
        for rank in other.ranks.values()
        if (operation := current(rank)) is not None
    }
    places = {r: (rank["host"], rank["pid"]) for r, rank in communicator.ranks.items()}
    return {r: operations[place] for r, place in places.items() if place in operations}


def _missing(
    communicator: Communicator, after: float, job: Sequence[Communicator]
) -> Iterable[dict[str, Any]]:
    inside = {
        r: op
        for r, rank in communicator.ranks.items()
        for op in collectives(rank).values()
        if rank["state"] == "alive" and op["ended"] == 0
    }
    if not inside:
        return
    number = max(op["number"] for op in inside.values())
    seconds = (
        max(communicator.ranks[r]["now"] - op["started"] for r, op in inside.items()) / _SECOND
    )
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
        yield verdict("left", left, text, number=number, waiting=sorted(inside))
        return
    if missing:
        yield _absence(communicator, job, missing, inside, model, seconds)
        return
    stopped = {r: _where(communicator.ranks[r]) for r in inside}
    stopped = {r: lines for r, lines in stopped.items() if lines and lines[0].startswith("stopped")}
    unseen = communicator.size - len(communicator.ranks)
    if stopped:
        text = f"{named(stopped)} {'is' if len(stopped) == 1 else 'are'} {min(stopped.values())[0]}"
        yield verdict(
            "stopped",
            stopped,
            f"{text} in {_described(model)}",
            number=number,
            waiting=sorted(set(inside) - set(stopped)),
        )
    elif unseen > 0:
        text = f"{named(inside)} {'is' if len(inside) == 1 else 'are'} in {_described(model)} "
        text += f"for {seconds:.1f} s, and no rank that can be seen from here is missing; the "
        text += f"{unseen} others run on other hosts, or have ended: look there"
        yield verdict("missing_elsewhere", [], text, number=number, waiting=sorted(inside))


def _missing_replay(
    communicator: Communicator, after: float, job: Sequence[Communicator]
) -> Iterable[dict[str, Any]]:
    """Ranks that are in no operation for a while, as others are in a captured one that needs them.

    A moment does not tell: the ends of replays are noticed at different times on different ranks.
    """
    running = [
        (r, op)
        for r, rank in communicator.ranks.items()
        if rank["state"] == "alive"
        for op in replays(rank)
        if op["ended"] == 0 and op["kind"] in _MEETINGS
    ]
    if not running:
        return
    number = max(op["number"] for _, op in running)
    inside = {r: op for r, op in running if op["number"] == number}
    seconds = (
        max(communicator.ranks[r]["now"] - op["started"] for r, op in inside.items()) / _SECOND
    )
    missing = [
        r
        for r, rank in communicator.ranks.items()
        if rank["state"] == "alive" and _tells_replays(rank) and _idle(rank) >= after
    ]
    if missing and seconds >= after:
        model = inside[min(inside)]
        yield _absence(communicator, job, missing, inside, model, seconds)


def _tells_replays(rank: dict[str, Any]) -> bool:
    return bool(rank.get("tells_replays")) and not rank.get("off")


def _idle(rank: dict[str, Any]) -> float:
    """For how many seconds it has been in no operation."""
    if current(rank) is not None:
        return 0.0
    last = max((o["ended"] for o in operations(rank)), default=0)
    return float(rank["now"] - last) / _SECOND


def _absence(
    communicator: Communicator,
    job: Sequence[Communicator],
    missing: Sequence[int],
    inside: dict[int, dict[str, Any]],
    model: dict[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """The verdict that ranks `missing` are not where those `inside` are."""
    elsewhere = _elsewhere(communicator, job)
    # Ranks that are in other operations come when these end, whose own verdicts say why not.
    to_blame = [r for r in missing if r not in elsewhere] or missing
    places = {
        r: [elsewhere[r]] if r in elsewhere else _place(communicator.ranks[r]) for r in missing
    }
    what = "replayed" if model.get("replay") else "called"
    text = f"{named(to_blame)} {'has' if len(to_blame) == 1 else 'have'} not {what} "
    text += f"{_described(model)}"
    first = next((r for r in to_blame if places[r]), None)
    if first is not None:
        rank = communicator.ranks[first]
        several = len(set(map(host_of, communicator.ranks.values()))) > 1
        on = f" on {host_of(rank)}" if several else ""
        text += f" (rank {first}{on}, process {rank['pid']}: {places[first][0]})"
    for r in missing:
        if r not in to_blame:
            text += f"; rank {r} is {places[r][0]}"
    text += f"; {named(inside)} {'waits' if len(inside) == 1 else 'wait'} for {seconds:.1f} s"
    return verdict(
        "missing_rank",
        to_blame,
        text,
        number=model["number"],
        seconds=round(seconds, 3),
        waiting=sorted(inside),
        where={str(r): lines for r, lines in places.items()},
    )


def _place(rank: dict[str, Any]) -> list[str]:
    """Of a rank that is in no collective: the message or replay in which it is, and where."""
    inside = current(rank)
    return [*([] if inside is None else [f"in {called(inside)}"]), *_where(rank)]


def _where(rank: dict[str, Any]) -> list[str]:
    if "where" in rank:  # of a file
        return list(rank["where"])
    return processes.where(rank["process"]) if rank["process"] else []


def _unmatched(communicator: Communicator, after: float) -> Iterable[dict[str, Any]]:
    """Messages whose other side does not come, or comes with another tag."""
    told: set[frozenset[int]] = set()
    for r, rank in sorted(communicator.ranks.items()):
        for op in rank["operations"] if rank["state"] == "alive" else []:
            seconds = (rank["now"] - op["started"]) / _SECOND
            if not op["message"] or op["ended"] or seconds < after:
                continue
            if op["kind"] not in ("send", "recv"):
                continue
            peer = communicator.ranks.get(op["root"])
            other = "recv" if op["kind"] == "send" else "send"
            if peer is None:
                continue
            theirs = _unfinished(peer, other, r)
            tags = {o["tag"] for o in _unfinished(rank, op["kind"], op["root"])}
            if any(o["tag"] in tags for o in theirs):
                continue
            if theirs:
                pair = frozenset((r, op["root"]))
                if pair not in told:
                    told.add(pair)
                    yield _different_tags(r, op, theirs[0], seconds)
                continue
            text = f"rank {r} is in {op['call']} for {seconds:.1f} s; rank {op['root']} has not "
            text += f"called its {other}"
            yield verdict(
                "missing_message", [op["root"]], text, waiting=[r], seconds=round(seconds, 3)
            )


def _unsignalled(communicator: Communicator, after: float) -> Iterable[dict[str, Any]]:
    """Ranks that wait for a signal which nobody sends."""
    for r, rank in sorted(communicator.ranks.items()):
        for op in messages(rank) if rank["state"] == "alive" else []:
            seconds = (rank["now"] - op["started"]) / _SECOND
            if op["kind"] != "wait_signal" or op["ended"] or seconds < after:
                continue
            text = f"rank {r} is in {op['call']} for {seconds:.1f} s; "
            sender = communicator.ranks.get(op["root"])
            if op["count"] > 0:
                text += "no rank has set it to what it waits for"
                to_blame = []
            elif sender is None or _may_have_signalled(sender, r, op):
                continue
            else:
                text += f"rank {op['root']} has not sent that signal"
                places = _place(sender)
                text += f" ({places[0]})" if places else ""
                to_blame = [op["root"]]
            yield verdict("missing_signal", to_blame, text, waiting=[r], seconds=round(seconds, 3))


def _may_have_signalled(sender: dict[str, Any], to: int, wait: dict[str, Any]) -> bool:
    window, wanted = window_and_number(wait)
    own = messages(sender)
    numbers = [
        number
        for o in own
        if o["kind"] == "signal" and o["root"] == to and o["count"] == 0
        for at, number in [window_and_number(o)]
        if at == window
    ]
    if wanted == 0 or 0 in numbers:  # graphs send some, or wait
        return True
    forgets = len(own) < sender["messages"]
    return max(numbers, default=wanted if forgets else 0) >= wanted


def _unfinished(rank: dict[str, Any], kind: str, peer: int) -> list[dict[str, Any]]:
    """Messages of a rank to, or from, another one."""
    return [
        o
        for o in rank["operations"]
        if o["message"] and o["kind"] == kind and o["root"] == peer and o["ended"] == 0
    ]


def _different_tags(
    rank: int, op: dict[str, Any], theirs: dict[str, Any], seconds: float
) -> dict[str, Any]:
    text = f"rank {rank} is in {op['kind']} with tag {op['tag']} for {seconds:.1f} s, and rank "
    text += f"{op['root']} in {theirs['kind']} with tag {theirs['tag']}: a message goes to a "
    text += "receive of its tag"
    both = [rank, op["root"]]
    return verdict("different_tags", both, text, waiting=sorted(both), seconds=round(seconds, 3))


def _failed(communicator: Communicator) -> Iterable[dict[str, Any]]:
    failed = {r: rank for r, rank in communicator.ranks.items() if rank["error"] is not None}
    if not failed:
        return
    for r, rank in sorted(failed.items()):
        blamed = [communicator.ranks.get(other) for other in rank.get("blames", [])]
        if rank["error"] != "PeerLost" or not blamed:
            continue
        if any(other is not None and other["state"] == "alive" for other in blamed):
            continue  # what connects them is broken
        if "has left communicator" in rank["failure"]:
            yield verdict("left", rank["blames"], rank["failure"], waiting=_waiting(communicator))
        else:
            text = f"{named(rank['blames'])} died, or cannot be reached, as rank {r} says: "
            text += rank["failure"]
            yield verdict("dead_process", rank["blames"], text, waiting=_waiting(communicator))
        return
    first = failed[min(failed)]
    text = f"it is broken ({first['error']}): {first['failure']}"
    yield verdict("failed", first.get("blames") or failed, text, error=first["error"])


def state_of(communicator: Communicator, verdicts: Sequence[dict[str, Any]]) -> str:
    """idle, running, slow, stuck, failed or left."""
    kinds = {verdict["verdict"] for verdict in verdicts}
    if all(rank["state"] == "left" for rank in communicator.ranks.values()):
        return "left"
    if any(rank["error"] is not None for rank in communicator.ranks.values()):
        return "failed"
    if kinds - _SLOW:
        return "stuck"
    if kinds:
        return "slow"
    return "running" if _waiting(communicator) else "idle"
