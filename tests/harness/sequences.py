"""Random programs: operations one after another, some waited for at once and some later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.data import same_bits
from harness.matrix import DTYPES, prepared
from harness.operations import Arguments
from harness.worker import Rank


@dataclass(frozen=True)
class Step:
    """An operation of a program; the same on all ranks."""

    operation: str
    dtype: str
    op: str | None
    root: int
    counts: tuple[int, ...]
    in_place: bool
    async_op: bool
    waits: int  # for this many of the oldest works, after the call


def run_program(rank: Rank, backend: str, steps: Sequence[Step]) -> list[str]:
    """What is wrong, in words. Results are looked at when their operation has been waited for."""
    problems: list[str] = []
    pending = []
    for number, step in enumerate(steps):
        arguments = Arguments(
            DTYPES[step.dtype], step.op, step.root, step.counts, step.in_place, number
        )
        call = prepared(rank, step.operation, arguments, backend)
        pending.append((number, step, call, call.issue(step.async_op)))
        due, pending = pending[: step.waits], pending[step.waits :]
        problems += _waited(due)
    return problems + _waited(pending)


def _waited(due: Sequence[tuple]) -> list[str]:  # type: ignore[type-arg]
    problems = []
    for number, step, call, work in due:
        if step.async_op:
            work.wait()
        problems += [f"step {number}, {step.operation}: {p}" for p in call.problems(same_bits)]
    return problems
