"""Proofs about programs: the verifier of plans, in the words of the program's author."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from mscclpp import engine
from mscclpp.findings import Event, Finding, Proved, finding_of
from mscclpp.language.passes import Passes
from mscclpp.language.plan import Plan
from mscclpp.language.source import Location, ProgramError
from mscclpp.language.utils import ReplicationPolicy
from mscclpp.language.writer import data_of
from mscclpp.proofs_kept import PROPERTIES, keep, kept, key_of

__all__ = [
    "CannotVerify",
    "Event",
    "Finding",
    "NotProved",
    "Report",
    "lower_unproved",
    "prove",
    "prove_kept",
    "prove_plan",
]


_ITERATIONS = 2  # of loops, as programs are executed
_MOST_ITERATIONS = 10


class CannotVerify(ProgramError):
    """A program says what the verifier does not know yet. It may be right or wrong."""


class NotProved(ProgramError):
    """A program is wrong. `report` has all that was found, the message the first of it."""

    def __init__(self, report: Report) -> None:
        first = report.findings[0]
        super().__init__(f"{first.kind}: {first.message}", *first.locations)
        self.report = report
        more = len(report.findings) - 1
        self.args = (str(first) + (f"\n(and {more} more: see report)" if more else ""),)


@dataclass(frozen=True)
class Report:
    """What the verifier found. True if that is nothing: the program is right, for any count of
    elements, executed any number of times in a row."""

    findings: tuple[Finding, ...]
    in_place_safe: bool = False  # it also works where input and output are the same memory
    rank_order: bool = False  # sums are left to right in the order of the ranks
    flat: bool = False  # each sum is made in one go, with no rounding in between
    lowered_json: str = field(default="{}", repr=False)

    @functools.cached_property
    def lowered(self) -> dict[str, Any]:
        """What is executed, as torchcomms.plan has it."""
        lowered: dict[str, Any] = json.loads(self.lowered_json)
        return lowered

    def __bool__(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        """The findings, one of each kind for the same lines."""
        alike: dict[object, list[Finding]] = {}
        for finding in self.findings:
            alike.setdefault((finding.kind, finding.locations), []).append(finding)
        text = ""
        for first, *others in alike.values():
            text += f"{first}\n"
            text += f"  and {len(others)} more with these lines\n" if others else ""
        return text or "no findings\n"


def prove(written: Plan, passes: Passes, location: Location) -> Report:
    """Proves a program right, or says where it is not. A proof that was made before is read.

    What is proved is what is executed: the plan after all passes, with all instances. What is wrong
    is told of the simplest form of the program in which it is wrong, so that an operation is one
    call of the language, and thread blocks and chunks have the author's numbers.

    Args:
        written: what the program's `written()` gives.
        location: where the program is written.

    Raises:
        CannotVerify: the verifier does not know a construct yet.
        ProgramError: the program makes no sense.
    """
    key = key_of("program", data_of(written), _not_in_json(written), _settings(passes))
    return _from_files(key) or _keeping(key, _prove(written, passes, location))


def prove_kept(plan: Plan) -> Report:
    """As `prove_plan`; a proof that was made before is read."""
    key = key_of("plan", data_of(plan, extra=False))
    return _from_files(key) or _keeping(key, prove_plan(plan))


def _not_in_json(written: Plan) -> list[str]:
    blocks = (block for gpu in written.gpus for block in gpu.threadblocks)
    return [
        op.data_sync.name for block in blocks for outer in block.ops for op in (outer, *outer.ops)
    ]


def _settings(passes: Passes) -> list[object]:
    policy = passes.replication_policy.name
    return [passes.instances, passes.instr_fusion, passes.auto_sync, policy]


def _from_files(key: str) -> Report | None:
    found = kept(key)
    return None if found is None else Report((), **found[1], lowered_json=found[0])


def _keeping(key: str, report: Report) -> Report:
    if report:
        keep(key, report.lowered_json, {name: getattr(report, name) for name in PROPERTIES})
    return report


def _prove(written: Plan, passes: Passes, location: Location) -> Report:
    interleaved = passes.replication_policy is ReplicationPolicy.interleaved
    instances = passes.instances if interleaved else 1
    report = prove_plan(passes.applied(written), location, instances=instances)
    if report:
        return report
    for simpler in _simpler(passes):
        told = prove_plan(simpler.applied(written), location)
        if not told:
            return told
    return report


def _simpler(passes: Passes) -> Iterator[Passes]:
    yield replace(passes, instances=1, instr_fusion=False)
    if passes.instr_fusion and passes.instances > 1:
        yield replace(passes, instances=1)


def prove_plan(plan: Plan, location: Location | None = None, *, instances: int = 1) -> Report:
    """The same of an execution plan.

    Args:
        location: where it is written, as a whole.
        instances: chunks of the plan in one that the author named.
    """
    report = _proved(plan, location, instances, _ITERATIONS)
    for iterations in _other_iterations(plan) if report else ():
        if not (other := _proved(plan, location, instances, iterations)):
            return other
    return report


def _other_iterations(plan: Plan) -> tuple[int, ...]:
    """A short message is one iteration of a loop; in a long one all initial values are used up."""
    blocks = [block for gpu in plan.gpus for block in gpu.threadblocks]
    if not any(op.name == "pipeline" for block in blocks for op in block.ops):
        return ()
    values = [semaphore.init_value for gpu in plan.gpus for semaphore in gpu.semaphores]
    return 1, min(_MOST_ITERATIONS, 1 + max([_ITERATIONS, *(value + 1 for value in values)]))


def _proved(plan: Plan, location: Location | None, instances: int, iterations: int) -> Report:
    """Where loops have that many iterations."""
    answer = _asked("prove", location, program=data_of(plan, extra=False), iterations=iterations)
    said = "" if iterations == _ITERATIONS else f" (where loops have {iterations} iterations)"
    if "refused" in answer:
        answer["refused"]["why"] += said
        raise _refusal(plan, answer["refused"], location)
    factor = answer["factor"] * instances
    proved = Proved(plan, answer["plan"], answer["origins"], factor, location)
    found: dict[tuple[str, str], Finding] = {}  # once, not in every execution
    for raw in answer["report"]["findings"]:
        finding = finding_of(proved, raw)
        finding = replace(finding, message=finding.message + said)
        found.setdefault((finding.kind, finding.message), finding)
    return Report(
        tuple(found.values()),
        **answer["report"]["properties"],
        lowered_json=json.dumps(answer["plan"]),
    )


def _asked(do: str, location: Location | None, **request: Any) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = engine.call(do, **request)
    except ValueError as error:
        raise ProgramError(str(error), *([location] if location else [])) from error
    return answer


def _refusal(plan: Plan, refused: dict[str, Any], location: Location | None) -> ProgramError:
    operation, inner = refused["origin"]
    where, lines = "", [location] if location else []
    if operation >= 0:
        block = plan.gpus[refused["rank"]].threadblocks[refused["lane"]]
        op = block.ops[operation] if inner < 0 else block.ops[operation].ops[inner]
        where = f"rank {refused['rank']}, thread block {block.id}, {op.name!r}: "
        lines = list(op.locations) or lines
    if refused["wrong"]:
        return ProgramError(where + refused["why"], *lines)
    return CannotVerify(f"cannot be verified yet: {where}{refused['why']}", *lines)


def lower_unproved(plan: Plan, location: Location | None = None) -> dict[str, Any]:
    """The plan, as `torchcomms.plan.Plan` takes it, that does what an execution plan says, which
    may be wrong.

    Raises:
        CannotVerify: there is none.
        ProgramError: it makes no sense.
    """
    answer = _asked("lower_unproved", location, program=data_of(plan, extra=False))
    if "refused" in answer:
        raise _refusal(plan, answer["refused"], location)
    lowered: dict[str, Any] = answer["plan"]
    return lowered
