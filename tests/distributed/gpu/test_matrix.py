"""Every operation of backend ctran on GPUs gives what plain torch gives, bit for bit.

On a host with GPUs all pairs of the matrix; else, on the stand-ins, those that only move data, and
some types and operations: the device code is compiled anew for each of them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from gpu_ranks import BACKEND
from harness import Ranks
from harness.devices import has_gpu, most_ranks
from harness.matrix import NO_OP, Case, check, pairwise, run_cases

WORLDS = (1, 2, 4)
REDUCTIONS = {("bfloat16", "SUM"), ("float32", "PREMUL_TENSOR"), ("complex128", "PRODUCT")}
BATCH = 16


def _is_wanted(case: Case) -> bool:
    if has_gpu():
        return case.world <= most_ranks()
    if case.op == NO_OP:
        return case.world in WORLDS
    return case.world == 2 and (case.dtype, case.op) in REDUCTIONS


def _cases() -> list[Case]:
    return [case for case in pairwise(BACKEND) if _is_wanted(case)]


def _batches() -> list[list[Case]]:
    batches = []
    for world in sorted({case.world for case in _cases()}):
        some = [case for case in _cases() if case.world == world]
        batches += [some[at : at + BATCH] for at in range(0, len(some), BATCH)]
    return batches


@pytest.mark.parametrize("cases", _batches(), ids=lambda cases: f"{len(cases)}-x{cases[0].world}")
def test_pairs(ranks: Callable[[int], Ranks], cases: list[Case]) -> None:
    of_ranks = ranks(cases[0].world).run(run_cases, cases)
    for case, *reports in zip(cases, *of_ranks, strict=True):
        check(case, reports)
