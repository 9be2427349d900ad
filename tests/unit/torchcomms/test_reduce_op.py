"""ReduceOp and RedOpType."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from torchcomms import RedOpType, ReduceOp

PLAIN = ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG"]


@pytest.mark.parametrize("name", PLAIN)
def test_plain_operations(name: str) -> None:
    op = getattr(ReduceOp, name)
    assert op.type == getattr(RedOpType, name)
    assert op == ReduceOp(op.type)
    assert hash(op) == hash(ReduceOp(op.type))
    assert op.factor is None
    assert repr(op) == f"ReduceOp.{name}"


def test_operations_differ() -> None:
    assert len({getattr(ReduceOp, name) for name in PLAIN}) == len(PLAIN)
    assert ReduceOp.SUM != ReduceOp.AVG
    assert ReduceOp.SUM != "SUM"


def test_premul_sum_with_a_number() -> None:
    op = ReduceOp.PREMUL_SUM(0.5)
    assert op.type == RedOpType.PREMUL_SUM
    assert op.factor == 0.5
    assert op == ReduceOp.PREMUL_SUM(0.5)
    assert op != ReduceOp.PREMUL_SUM(0.25)
    assert ReduceOp.PREMUL_SUM(2).factor == 2.0


def test_premul_sum_with_a_tensor() -> None:
    factor = torch.tensor([0.25])
    op = ReduceOp.PREMUL_SUM(factor)
    assert op.factor is factor
    assert op == ReduceOp.PREMUL_SUM(factor)


@pytest.mark.parametrize("factor", [torch.ones(2), torch.ones(0), torch.tensor(1j)])
def test_premul_sum_refuses_other_tensors(factor: torch.Tensor) -> None:
    with pytest.raises(RuntimeError, match="real tensor of one element"):
        ReduceOp.PREMUL_SUM(factor)


@pytest.mark.parametrize("factor", ["2", None, 1j])
def test_premul_sum_refuses_what_is_no_number(factor: object) -> None:
    with pytest.raises(TypeError, match="must be a number or a Tensor"):
        ReduceOp.PREMUL_SUM(factor)  # type: ignore[arg-type]


def test_copies() -> None:
    factor = torch.tensor([0.25])
    op = ReduceOp.PREMUL_SUM(factor)
    assert copy.copy(op).factor is factor
    first, second = copy.deepcopy([op, op])
    assert first is second
    assert isinstance(first.factor, torch.Tensor)
    assert first.factor is not factor
    assert torch.equal(first.factor, factor)
    assert copy.deepcopy(ReduceOp.MAX) == ReduceOp.MAX


@pytest.mark.parametrize("name", PLAIN)
def test_plain_operations_are_pickled(name: str) -> None:
    op = getattr(ReduceOp, name)
    assert pickle.loads(pickle.dumps(op)) == op


def test_factors_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(ReduceOp.PREMUL_SUM(0.5))) == ReduceOp.PREMUL_SUM(0.5)
    factor = torch.tensor([0.25], dtype=torch.float64)
    loaded = pickle.loads(pickle.dumps(ReduceOp.PREMUL_SUM(factor))).factor
    torch.testing.assert_close(loaded, factor)
