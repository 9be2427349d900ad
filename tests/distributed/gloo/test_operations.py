"""Backend gloo: every operation, synchronous and not, on every dtype, against plain numbers.

The inputs of each case are compared with what they were before.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from gloo_ranks import Ranks, cases
from gloo_ranks.reference import DTYPES, OPS, is_defined

import torchcomms

pytestmark = pytest.mark.skipif(
    not torchcomms.is_backend_built("gloo"), reason="built with USE_GLOO=0"
)
both_ways = pytest.mark.parametrize("async_op", [False, True], ids=["sync", "async"])
worlds = pytest.mark.parametrize("world", [2, 3, 4])


def named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    made = Ranks(4)
    yield made
    made.close()


@both_ways
@pytest.mark.parametrize("dtype", DTYPES, ids=named)
@pytest.mark.parametrize("op", OPS)
def test_reductions(ranks: Ranks, op: str, dtype: torch.dtype, async_op: bool) -> None:
    if not is_defined(op, dtype):
        ranks.run(cases.undefined_reduction, op, dtype, ranks=[0, 1])
        return
    for world, count in ((2, 33), (3, 0), (4, 1), (4, 1000)):
        ranks.run(cases.reductions, op, dtype, count, async_op, ranks=range(world))


@both_ways
@worlds
def test_movements_of_all_dtypes(ranks: Ranks, world: int, async_op: bool) -> None:
    for dtype in DTYPES:
        ranks.run(cases.movements, dtype, 17, async_op, ranks=range(world))


@both_ways
@pytest.mark.parametrize("count", [0, 1, 100_003])
def test_movements_of_any_count(ranks: Ranks, count: int, async_op: bool) -> None:
    ranks.run(cases.movements, torch.float32, count, async_op, ranks=[0, 1, 2])


@both_ways
@worlds
def test_exchanges(ranks: Ranks, world: int, async_op: bool) -> None:
    for dtype, count in ((torch.float32, 5), (torch.bool, 3), (torch.complex128, 70_001)):
        ranks.run(cases.exchanges, dtype, count, async_op, ranks=range(world))
    ranks.run(cases.exchanges, torch.int16, 0, async_op, ranks=range(world))


def test_batches_of_neighbours_leave_collectives_in_step(ranks: Ranks) -> None:
    ranks.run(cases.neighbours)
    ranks.run(cases.neighbours)


def test_collectives_are_in_order(ranks: Ranks) -> None:
    ranks.run(cases.in_order)


def test_tensors_that_require_grad(ranks: Ranks) -> None:
    ranks.run(cases.leaf)


def test_status_of_a_receive_is_true(ranks: Ranks) -> None:
    ranks.run(cases.callbacks_and_status)


def test_one_rank(ranks: Ranks) -> None:
    for op in ("SUM", "AVG", "PREMUL_SUM"):
        ranks.run(cases.reductions, op, torch.float32, 9, False, ranks=[0])
    ranks.run(cases.movements, torch.float32, 9, True, ranks=[0])
