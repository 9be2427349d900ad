"""Reductions of unusual values, and the objects that name reductions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import Rank, Ranks

import torchcomms
from torchcomms import ReduceOp

MakeRanks = Callable[[int], Ranks]
BACKEND = "ctran"


def test_reduce_op() -> None:
    assert ReduceOp(torchcomms.RedOpType.SUM) == ReduceOp.SUM
    assert ReduceOp.SUM != ReduceOp.MAX
    assert ReduceOp.SUM.type == torchcomms.RedOpType.SUM
    scaled = ReduceOp.PREMUL_SUM(0.5)
    assert scaled.type == torchcomms.RedOpType.PREMUL_SUM
    assert scaled.factor == 0.5
    assert copy.copy(scaled) == scaled
    tensor = ReduceOp.PREMUL_SUM(torch.tensor([2.0]))
    memo: dict[int, Any] = {}
    first, second = copy.deepcopy([tensor, tensor], memo)
    assert first is second
    assert first.factor is not tensor.factor
    assert torch.equal(first.factor, tensor.factor)
    with pytest.raises(RuntimeError):
        ReduceOp.PREMUL_SUM(torch.ones(2))


def reduces_special_values(rank: Rank, dtype: torch.dtype, in_rounds: bool) -> None:
    comm = rank.comm(BACKEND)
    inf, nan = float("inf"), float("nan")
    has_inf = dtype != torch.float8_e4m3fn
    of_rank = [
        [nan, 1.0, -0.0, 0.0, inf if has_inf else 2.0, 1.0],
        [1.0, nan, 0.0, -0.0, -inf if has_inf else -2.0, 1.0],
        [2.0, 3.0, 0.0, -0.0, 0.0, 1.0],
    ]
    repeat = 20_000 if in_rounds else 1
    expected = {
        "MIN": [nan, nan, -0.0, -0.0, -inf if has_inf else -2.0, 1.0],
        "MAX": [nan, nan, 0.0, 0.0, inf if has_inf else 2.0, 1.0],
        "SUM": [nan, nan, 0.0, 0.0, nan if has_inf else 0.0, 3.0],
    }
    for op, values in expected.items():
        tensor = torch.tensor(of_rank[rank.rank]).to(dtype).repeat(repeat)
        comm.all_reduce(tensor, getattr(ReduceOp, op), async_op=False)
        got = tensor.float()
        want = torch.tensor(values).repeat(repeat)
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
        numbers = ~want.isnan()
        assert torch.equal(got.signbit()[numbers], want.signbit()[numbers]), op


@pytest.mark.parametrize("in_rounds", [False, True])
@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
    ],
    ids=str,
)
def test_nan_spreads_and_zeros_keep_their_sign(
    ranks: MakeRanks, dtype: torch.dtype, in_rounds: bool
) -> None:
    ranks(3).run(reduces_special_values, dtype, in_rounds)


def reduces_beyond_the_range(rank: Rank) -> list[float]:
    comm = rank.comm(BACKEND)
    results = []
    for dtype in (torch.float16, torch.float8_e4m3fn, torch.float8_e5m2):
        tensor = torch.full((2,), torch.finfo(dtype).max).to(dtype)
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        results.append(tensor.float()[0].item())
        # In between sums may be larger than the type: they are kept in fp32.
        sign = -1.0 if rank.rank == 2 else 1.0
        tensor = torch.full((2,), sign * torch.finfo(dtype).max).to(dtype)
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        results.append(tensor.float()[0].item())
    return results


def test_narrow_floats_overflow_only_at_the_end(ranks: MakeRanks) -> None:
    for half, half_sum, e4m3, e4m3_sum, e5m2, e5m2_sum in ranks(3).run(reduces_beyond_the_range):
        assert half == float("inf")
        assert half_sum == torch.finfo(torch.float16).max
        assert e4m3 != e4m3  # that type has no infinity
        assert e4m3_sum == torch.finfo(torch.float8_e4m3fn).max
        assert e5m2 == float("inf")
        assert e5m2_sum == torch.finfo(torch.float8_e5m2).max
