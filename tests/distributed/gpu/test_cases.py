"""What backend ctran promises on GPUs, on GPUs where there are some, else on the stand-ins."""

from __future__ import annotations

from collections.abc import Callable

import gpu_ranks.algorithms
import gpu_ranks.copies
import gpu_ranks.device_windows
import gpu_ranks.groups
import gpu_ranks.hosts
import gpu_ranks.messages
import gpu_ranks.mscclpp
import gpu_ranks.ncclx
import gpu_ranks.persistent
import gpu_ranks.plans
import gpu_ranks.quantized
import gpu_ranks.reconfigure
import gpu_ranks.rows
import gpu_ranks.stress
import gpu_ranks.symmetric
import gpu_ranks.through_host
import gpu_ranks.triton_windows
import gpu_ranks.trouble
import gpu_ranks.use
import gpu_ranks.windows  # noqa: F401  (all register their cases)
import pytest
import torch
from gpu_ranks import CASES, Case
from harness import Ranks
from harness.devices import has_gpu, most_ranks

HERE = [case for case in CASES if has_gpu() or not case.real]


@pytest.mark.parametrize("case", HERE, ids=lambda case: case.name)
def test_case(
    ranks: Callable[[int], Ranks], fresh_ranks: Callable[[int], Ranks], case: Case
) -> None:
    if has_gpu() and most_ranks(case.apart) < case.world:
        pytest.skip(f"needs {case.world} GPUs, here are {torch.cuda.device_count()}")
    case.run(fresh_ranks if case.breaks else ranks)
