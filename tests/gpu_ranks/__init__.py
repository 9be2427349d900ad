"""What backend ctran promises on GPUs, as cases that need no pytest: they run by hand, too.

A case is a function that gets `make(world)`, which gives ranks; it raises if a promise is broken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from harness import Ranks

Make = Callable[[int], Ranks]
BACKEND = "ctran_gpu"


@dataclass(frozen=True)
class Case:
    name: str
    world: int
    breaks: bool
    real: bool
    apart: bool
    run: Callable[[Make], None]


CASES: list[Case] = []


def case(
    world: int,
    breaks: bool = False,
    real: bool = False,
    apart: bool = False,
    module: str = "torch",
) -> Callable[[Callable[[Make], None]], Callable[[Make], None]]:
    """Registers a case that needs so many ranks, which it may break.

    `real`: on GPUs alone. `apart`: no two ranks on one GPU, which NCCL refuses. `module`: only
    where that is installed.
    """

    def register(function: Callable[[Make], None]) -> Callable[[Make], None]:
        if find_spec(module) is not None:
            CASES.append(Case(function.__name__, world, breaks, real, apart, function))
        return function

    return register
