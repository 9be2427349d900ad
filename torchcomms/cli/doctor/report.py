"""What `torchcomms doctor` reports: the schema of --json, and the text that people read.

docs/troubleshooting.md describes the schema. A change that a reader of it could notice counts
SCHEMA up.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from torchcomms.cli.doctor.finding import BROKEN, GOOD, RESULTS, Outcome

SCHEMA = 1


@dataclass
class Place:
    """A process that took part."""

    rank: int
    host: str
    """Its name, or CTRAN_HOST."""


@dataclass
class Finding:
    """What one check found, on the ranks that found the same."""

    check: str
    subject: str
    about: str
    result: str
    """good, slow or broken."""
    reason: str
    todo: str
    """What to type or to change; empty where there is nothing to do."""
    details: list[str]
    ranks: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, check: str, subject: str, about: str, outcome: Outcome) -> Finding:
        details = list(outcome.details)
        return cls(check, subject, about, outcome.result, outcome.reason, outcome.todo, details)


@dataclass
class Pair:
    """What was measured between two ranks, `a` < `b`. Numbers are None where that failed."""

    a: int
    b: int
    result: str
    """slow: much slower than the median pair of its kind; broken: they cannot talk."""
    latency_us: float | None = None
    """Half of the shortest round trip of 8 bytes, in microseconds."""
    bandwidth_gbs: float | None = None
    """Of the best message of 8 MB, in gigabytes (1e9) per second."""
    clock_offset_us: float | None = None
    """How far the clock of `b` is ahead of that of `a`, in microseconds."""
    clock_error_us: float | None = None
    """The offset is right by plus or minus this."""
    same_host: bool = False
    error: str = ""


@dataclass
class Report:
    version: str
    result: str = GOOD
    """The worst of all findings."""
    places: list[Place] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    schema: int = SCHEMA

    def settle(self) -> None:
        """Takes the worst result."""
        self.result = max((one.result for one in self.findings), key=RESULTS.index, default=GOOD)

    @property
    def exit_code(self) -> int:
        return int(self.result == BROKEN)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def finding_from(data: dict[str, Any]) -> Finding:
    """The reverse of dataclasses.asdict()."""
    return Finding(**data)


def merge(by_rank: dict[int, list[Finding]]) -> list[Finding]:
    """Findings that are alike but for the rank become one; checks keep their order."""
    merged: dict[tuple[Any, ...], Finding] = {}
    order: dict[str, int] = {}
    for rank, findings in sorted(by_rank.items()):
        for one in findings:
            order.setdefault(one.check, len(order))
            key = (one.check, one.result, one.reason, one.todo, tuple(one.details))
            merged.setdefault(key, one).ranks.append(rank)
    return sorted(merged.values(), key=lambda one: order[one.check])
