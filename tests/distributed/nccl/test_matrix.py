"""Every operation of backend nccl gives what plain torch gives, on a GPU or on the stand-ins.

On the stand-ins also those of rccl and rcclx, which are the same source by other tables, if they
are built.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from harness import Rank, Ranks
from harness.devices import has_gpu
from harness.matrix import Case, check, pairwise, run_case

import torchcomms

# As many GPUs as most hosts with several have.
WORLDS = (1, 2, 4)
CASES = [case for case in pairwise("nccl") if case.world in WORLDS]
# As many as see each operation and each type.
AMD = [
    case
    for at, backend in enumerate(("rccl", "rcclx"))
    for case in pairwise(backend)[at::2]
    if case.world == 2
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pairs(ranks: Callable[[int], Ranks], case: Case) -> None:
    if has_gpu() and torch.cuda.device_count() < case.world:
        pytest.skip(f"needs {case.world} GPUs, here are {torch.cuda.device_count()}")
    check(case, ranks(case.world).run(run_case, case))


def _made(rank: Rank, backend: str) -> str:
    comm = rank.new_comm(backend, "made")
    told = comm.get_backend()
    comm.finalize()
    return told


@pytest.mark.skipif(has_gpu(), reason="this one is NVIDIA's")
@pytest.mark.parametrize("backend", ["rccl", "rcclx"])
def test_amd(ranks: Callable[[int], Ranks], backend: str) -> None:
    if backend not in torchcomms.built_backends():
        pytest.skip("not built: USE_" + backend.upper())
    assert ranks(2).run(_made, backend) == [backend] * 2
    for case in AMD:
        if case.backend == backend:
            check(case, ranks(2).run(run_case, case))
