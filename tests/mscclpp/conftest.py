"""What tests of the language share."""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mscclpp.language import CollectiveProgram, Plan
from mscclpp.language.plan import Operation

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests compile and prove is not left in the user's."""
    with pytest.MonkeyPatch.context() as patch:
        if "MSCCLPP_CACHE_DIR" not in os.environ:
            own = tmp_path_factory.getbasetemp()
            shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
            patch.setenv("MSCCLPP_CACHE_DIR", str(shared / "mscclpp"))
        yield


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
