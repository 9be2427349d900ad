"""PyTorch's own training stacks on communicators of ours."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from harness import Rank, Ranks
from harness.groups import OVER_GLOO, process_group

import torchcomms

MakeRanks = Callable[[int], Ranks]


def _stacks() -> ModuleType:
    """stacks.py beside this file. Imported where a stack runs: it imports much of torch."""
    name = "torchcomms_test_stacks"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("stacks.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def trains(rank: Rank, backend: str, stack: str) -> None:
    with process_group(rank, backend):
        getattr(_stacks(), stack)(rank)


STACKS = [
    "data_parallel",
    "data_parallel_with_a_hook",
    "data_parallel_with_sparse_gradients",
    "fully_sharded",
    "hybrid_sharded",
    "tensor_parallel",
    "pipeline_parallel",
    "sharded_optimizer",
    "checkpoint",
    "device_mesh",
]


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("backend", ["ctran", OVER_GLOO])
def test_stack(ranks: MakeRanks, backend: str, stack: str) -> None:
    if backend == OVER_GLOO and not torchcomms.is_backend_built("gloo"):
        pytest.skip("built with USE_GLOO=0")
    ranks(4).run(trains, backend, stack)
