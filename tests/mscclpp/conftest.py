"""What tests of the language share."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from mscclpp.language import CollectiveProgram, Plan
from mscclpp.language.plan import Operation

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def write_program() -> Callable[..., CollectiveProgram]:
    """`write_program(name, **settings)`: a program of the folder, as its file writes it."""

    def write(name: str, **settings: object) -> CollectiveProgram:
        program: CollectiveProgram = runpy.run_path(str(PROGRAMS / f"{name}.py"))["program"](
            **settings
        )
        return program

    return write


@pytest.fixture
def ops() -> Callable[..., tuple[Operation, ...]]:
    """`ops(plan, rank, block)`: what a thread block does."""

    def of(plan: Plan, rank: int = 0, block: int = 0) -> tuple[Operation, ...]:
        return plan.gpus[rank].threadblocks[block].ops

    return of


@pytest.fixture
def names(ops: Callable[..., tuple[Operation, ...]]) -> Callable[..., str]:
    """`names(plan, rank, block)`: the names of what it does, with spaces between."""
    return lambda plan, rank=0, block=0: " ".join(op.name for op in ops(plan, rank, block))
