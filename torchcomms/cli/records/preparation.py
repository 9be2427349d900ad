"""Steps that do again and again what a program does once: compile, register memory, map it."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

from torchcomms.cli.records.calls import collectives, named, verdict
from torchcomms.cli.records.job import Communicator

_WARM_UP = 8  # collectives, of which each may be the first of its kind
_LEAST_OPERATIONS = 8  # that prepare
_LEAST_SHARE = 0.25  # of all


def preparation(communicator: Communicator) -> Iterable[dict[str, Any]]:
    found: dict[int, tuple[float, int]] = {}
    calls = 0
    for r, rank in communicator.ranks.items():
        own = [op for number, op in sorted(collectives(rank).items()) if number > _WARM_UP]
        nanos = [op["prepared"] for op in own if op.get("prepared", 0) > 0]
        if len(nanos) < max(_LEAST_OPERATIONS, _LEAST_SHARE * len(own)):
            continue
        passed = max(op["ended"] or rank["now"] for op in own) - own[0]["called"]
        found[r] = (min(sum(nanos) / max(passed, 1), 1), len(nanos))
        calls = max(calls, len(own))
    if not found:
        return
    loss = median(share for share, _ in found.values())
    count = round(median(number for _, number in found.values()))
    text = f"{named(found)} {'registers' if len(found) == 1 else 'register'} memory, or "
    text += f"{'compiles' if len(found) == 1 else 'compile'} or "
    text += f"{'loads' if len(found) == 1 else 'load'} kernels, again and again: in {count} of the "
    text += f"last {calls} collectives, {loss:.0%} of the time; register tensors once and keep "
    text += "them, and call prepare() before the first step"
    yield verdict("preparation", found, text, loss=round(loss, 3))
