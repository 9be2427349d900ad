"""Operations of a rank, as verdicts and views need them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def collectives(rank: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """By number, from 1; that with which a communicator is made is none of the user's."""
    return {o["number"]: o for o in rank["operations"] if not o["message"] and o["number"] > 0}


def messages(rank: dict[str, Any]) -> list[dict[str, Any]]:
    """Of two ranks: sends and receives, and what windows do. In the order of their calls."""
    return sorted((o for o in rank["operations"] if o["message"]), key=lambda o: int(o["number"]))


def window_and_number(operation: dict[str, Any]) -> tuple[int, int]:
    """Of an operation of a window: which one it is of those that the communicator records, and
    the number of a signal among those of its sender to its receiver; 0: it has none."""
    return divmod(int(operation["tag"]), 1 << 24)


def replays(rank: dict[str, Any]) -> list[dict[str, Any]]:
    """Captured operations as they ran in replays of their graphs, with the numbers of the calls."""
    return [{**o, "replay": True} for o in rank.get("replays", [])]


def operations(rank: dict[str, Any]) -> list[dict[str, Any]]:
    """What has been called, and what ran in replays."""
    return [*rank["operations"], *replays(rank)]


def users(rank: dict[str, Any]) -> list[dict[str, Any]]:
    """The same, but what the communicator is made with, which is none of the user's."""
    return [o for o in operations(rank) if o["message"] or o["number"] > 0]


def current(rank: dict[str, Any]) -> dict[str, Any] | None:
    """The operation in which a rank is."""
    if rank["state"] != "alive":
        return None
    running = [o for o in operations(rank) if o["ended"] == 0]
    return min(running, key=lambda o: o["started"]) if running else None


def called(operation: dict[str, Any]) -> str:
    """The call, for people."""
    return f"{operation['call']}{', in a replay' if operation.get('replay') else ''}"


def named(ranks: Iterable[int]) -> str:
    """ "rank 3", "ranks 1, 2 and 5"."""
    texts = [str(rank) for rank in sorted(ranks)]
    if len(texts) == 1:
        return f"rank {texts[0]}"
    if len(texts) > 8:
        return f"{len(texts)} ranks ({', '.join(texts[:6])}, ...)"
    return f"ranks {', '.join(texts[:-1])} and {texts[-1]}"


def verdict(kind: str, ranks: Iterable[int], text: str, **more: Any) -> dict[str, Any]:
    return {"verdict": kind, "ranks": sorted(ranks), "text": text, **more}
