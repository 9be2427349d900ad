"""What `torchcomms doctor` reports: the schema of --json, and the text that people read.

docs/troubleshooting.md describes the schema. A change that a reader of it could notice counts
SCHEMA up.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from torchcomms.cli.doctor.finding import BROKEN, GOOD, RESULTS, SLOW, Outcome

SCHEMA = 1
_WIDTH = 100


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


def rank_list(ranks: list[int]) -> str:
    """[0, 1, 2, 5] is "0-2,5"."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and parts[-1][-1] == rank - 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    return ",".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)


def _where(finding: Finding, places: list[Place]) -> str:
    if len(finding.ranks) == len(places):
        return ""
    hosts = dict.fromkeys(place.host for place in places if place.rank in finding.ranks)
    return f" [rank {rank_list(finding.ranks)} on {', '.join(hosts)}]"


def _wrapped(first: str, rest: str, text: str) -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _shown(finding: Finding, places: list[Place]) -> Iterator[str]:
    mark = finding.result if finding.result == GOOD else finding.result.upper()
    margin = " " * 29
    text = finding.reason + _where(finding, places)
    yield _wrapped(f"  {mark:<7} {finding.check:<17}  ", margin, text)
    for line in finding.details:
        yield _wrapped(f"{margin}- ", f"{margin}  ", line)
    if finding.todo:
        yield _wrapped(f"{margin}> ", f"{margin}  ", finding.todo)


def text_of(report: Report) -> str:
    """For people, without colours."""
    from torchcomms.cli.doctor.matrix import matrices

    hosts = list(dict.fromkeys(place.host for place in report.places))
    who = f"{len(report.places)} ranks on " if len(report.places) > 1 else ""
    lines = [f"torchcomms {report.version}, {who}{', '.join(hosts)}"]
    subjects = dict.fromkeys(one.subject for one in report.findings)
    for subject in subjects:
        lines += ["", subject]
        for finding in report.findings:
            if finding.subject == subject:
                lines += _shown(finding, report.places)
    lines += matrices(report)
    counts = {result: 0 for result in (GOOD, SLOW, BROKEN)}
    for finding in report.findings:
        counts[finding.result] += 1
    lines += ["", ", ".join(f"{count} {result}" for result, count in counts.items())]
    return "\n".join(lines)
