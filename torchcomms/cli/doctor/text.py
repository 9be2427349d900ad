"""The report as people read it, without colours."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from torchcomms.cli.doctor.finding import GOOD, RESULTS
from torchcomms.cli.doctor.matrix import matrices
from torchcomms.cli.doctor.report import Finding, Place, Report

_WIDTH = 100
_MARGIN = " " * 29


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
    text = finding.reason + _where(finding, places)
    yield _wrapped(f"  {mark:<7} {finding.check:<17}  ", _MARGIN, text)
    for line in finding.details:
        yield _wrapped(f"{_MARGIN}- ", f"{_MARGIN}  ", line)
    if finding.todo:
        yield _wrapped(f"{_MARGIN}> ", f"{_MARGIN}  ", finding.todo)


def _collapsed(findings: list[Finding]) -> Iterator[tuple[Finding, int]]:
    """Of what is good, but in other words on each host, the first, and how many more there are."""
    of_check: dict[tuple[str, str], list[Finding]] = {}
    for one in findings:
        of_check.setdefault((one.check, one.result), []).append(one)
    for (_, result), alike in of_check.items():
        if result == GOOD:
            yield alike[0], len(alike) - 1
        else:
            yield from ((one, 0) for one in alike)


def text_of(report: Report) -> str:
    hosts = list(dict.fromkeys(place.host for place in report.places))
    who = f"{len(report.places)} ranks on " if len(report.places) > 1 else ""
    lines = [f"torchcomms {report.version}, {who}{', '.join(hosts)}"]
    subjects = dict.fromkeys(one.subject for one in report.findings)
    for subject in subjects:
        lines += ["", subject]
        of_subject = [one for one in report.findings if one.subject == subject]
        for finding, more in _collapsed(of_subject):
            lines += _shown(finding, report.places)
            if more:
                lines.append(f"{_MARGIN}+ {more} more, good in other words (--json has them)")
    lines += matrices(report)
    counts = dict.fromkeys(RESULTS, 0)
    for finding in report.findings:
        counts[finding.result] += 1
    lines += ["", ", ".join(f"{count} {result}" for result, count in counts.items())]
    return "\n".join(lines)
