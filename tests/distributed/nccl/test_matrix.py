"""Every operation of backend nccl gives what plain torch gives, on a GPU or on the stand-ins."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from harness import Ranks
from harness.devices import has_gpu
from harness.matrix import Case, check, pairwise, run_case

# As many GPUs as most hosts with several have.
WORLDS = (1, 2, 4)
CASES = [case for case in pairwise("nccl") if case.world in WORLDS]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pairs(ranks: Callable[[int], Ranks], case: Case) -> None:
    if has_gpu() and torch.cuda.device_count() < case.world:
        pytest.skip(f"needs {case.world} GPUs, here are {torch.cuda.device_count()}")
    check(case, ranks(case.world).run(run_case, case))
