"""Bytes between the ranks of a communicator, by transport."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from torchcomms.cli.records.job import Communicator

_MOST_SHOWN = 8


class Way(NamedTuple):
    """From a rank to another, over `transport`: tcp, rdma, shm (memory that both share), or cma (a
    rank reads the other's own memory)."""

    source: int
    target: int
    transport: str


def traffic(communicator: Communicator) -> dict[Way, int]:
    """Bytes so far. Between hosts senders count, on one host readers do."""
    bytes_of: dict[Way, int] = defaultdict(int)
    for r, rank in communicator.ranks.items():
        for link in rank.get("links", []):
            peer = int(link["peer"])
            copied = int(link.get("copied", 0))
            bytes_of[Way(r, peer, link["transport"])] += int(link["sent"])
            bytes_of[Way(peer, r, "shm")] += int(link.get("received", 0)) - copied
            bytes_of[Way(peer, r, "cma")] += copied
    return {way: count for way, count in sorted(bytes_of.items()) if count > 0}


def rows(communicator: Communicator) -> list[dict[str, Any]]:
    """As data."""
    return [
        {"from": way.source, "to": way.target, "transport": way.transport, "bytes": count}
        for way, count in traffic(communicator).items()
    ]


def busiest(before: Mapping[Way, int], now: Mapping[Way, int], seconds: float) -> list[str]:
    """What goes fastest, of what has gone meanwhile, for people."""
    moved = {way: count - before.get(way, 0) for way, count in now.items()}
    fastest = sorted((way for way, count in moved.items() if count > 0), key=lambda w: -moved[w])
    texts = [
        f"{way.source} > {way.target} {way.transport} {moved[way] / seconds / 1e6:.4g}"
        for way in fastest[:_MOST_SHOWN]
    ]
    if len(fastest) > _MOST_SHOWN:
        texts.append(f"and {len(fastest) - _MOST_SHOWN} more")
    return texts
