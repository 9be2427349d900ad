"""What backend nccl promises, on GPUs where there are some, else on the stand-ins."""

from __future__ import annotations

from collections.abc import Callable

import nccl_ranks.plugins
import nccl_ranks.reconfigure
import nccl_ranks.trouble
import nccl_ranks.use
import nccl_ranks.windows  # noqa: F401  (all register their cases)
import pytest
import torch
from harness import Ranks
from harness.devices import has_gpu
from nccl_ranks import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(
    ranks: Callable[[int], Ranks], fresh_ranks: Callable[[int], Ranks], case: Case
) -> None:
    if has_gpu() and torch.cuda.device_count() < case.world:
        pytest.skip(f"needs {case.world} GPUs, here are {torch.cuda.device_count()}")
    case.run(fresh_ranks if case.breaks else ranks)
