"""What backend nccl promises, as cases that need no pytest: they run on GPUs by hand, too.

A case is a function that gets `make(world)`, which gives ranks; it raises if a promise is
broken. `tests/distributed/nccl` runs them on what the machine has, `tests/gpu/nccl/run.py` on a GPU
host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from harness import Ranks

Make = Callable[[int], Ranks]


@dataclass(frozen=True)
class Case:
    name: str
    world: int
    breaks: bool
    run: Callable[[Make], None]


CASES: list[Case] = []


def case(
    world: int, breaks: bool = False, module: str = "torch"
) -> Callable[[Callable[[Make], None]], Callable[[Make], None]]:
    """Registers a case that needs so many ranks, which it may break; `module`: only where that is
    installed."""

    def register(function: Callable[[Make], None]) -> Callable[[Make], None]:
        if find_spec(module) is not None:
            CASES.append(Case(function.__name__, world, breaks, function))
        return function

    return register
