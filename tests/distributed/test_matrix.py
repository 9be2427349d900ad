"""Every operation gives what plain torch gives, bit for bit, whatever the arguments.

`make test` runs a set of cases in which every pair of values of two axes occurs, `make test-full`
all cases. Both look at everything a call may have touched: results (poisoned before), inputs, and
the memory beside either; and at whether all ranks have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product

import pytest
from harness import Ranks
from harness.matrix import (
    AXES,
    DTYPES,
    WORLDS,
    Case,
    all_cases,
    check,
    pairwise,
    run_case,
    run_cases,
)
from harness.operations import OPERATIONS

# ctran reduces in rank order, to the last bit; gloo in an order of its own, the same on all ranks.
BACKENDS = ("ctran", "gloo")
BATCH = 64  # cases per message to the ranks


PAIRWISE = [case for backend in BACKENDS for case in pairwise(backend)]


@pytest.mark.parametrize("case", PAIRWISE, ids=str)
def test_pairs(ranks: Callable[[int], Ranks], case: Case) -> None:
    check(case, ranks(case.world).run(run_case, case))


def in_batches(cases: Sequence[Case]) -> list[Sequence[Case]]:
    return [cases[at : at + BATCH] for at in range(0, len(cases), BATCH)]


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_product(
    ranks: Callable[[int], Ranks], backend: str, operation: str, dtype: str, world: int
) -> None:
    cases = list(all_cases(backend, operation=operation, dtype=dtype, world=world))
    for batch in in_batches(cases):
        of_ranks = ranks(world).run(run_cases, batch)
        for case, *reports in zip(batch, *of_ranks, strict=True):
            check(case, reports)


def test_every_pair_is_in_the_covering_set() -> None:
    """Of those that some case has at all."""
    covered = set()
    for case in pairwise("ctran"):
        covered.update(combinations([(axis, getattr(case, axis)) for axis in AXES], 2))
    for (a, of_a), (b, of_b) in combinations(AXES.items(), 2):
        for x, y in product(of_a, of_b):
            possible = any(True for _ in all_cases("ctran", **{a: x, b: y}))
            assert possible == (((a, x), (b, y)) in covered), (a, x, b, y)
