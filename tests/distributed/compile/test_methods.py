"""Methods of communicators, windows and batches in compiled functions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from compile_ranks import compiled, run
from compile_ranks.cases import CASES, Case
from harness import Rank, Ranks
from torch import Tensor

from torchcomms import OpName, TorchComm

MakeRanks = Callable[[int], Ranks]


def _check(comm: TorchComm, case: Case, async_op: bool) -> None:
    rank, size = comm.get_rank(), comm.get_size()
    expected = case.make(rank, size)
    case.run(comm, expected, async_op)
    calls: list[OpName] = []
    hook = comm.register_pre_hook(lambda name, _, __: calls.append(name))

    def function(tensors: list[Tensor]) -> Tensor:
        case.run(comm, tensors, async_op)
        return tensors[0] * 2

    traced, graphs = compiled(function)
    for _ in range(2):
        tensors = case.make(rank, size)
        result = traced(tensors)
        for got, wanted in zip(tensors, expected, strict=True):
            torch.testing.assert_close(got, wanted, rtol=0, atol=0)
        torch.testing.assert_close(result, expected[0] * 2, rtol=0, atol=0)
    hook.remove()
    assert len(graphs.code) == 1
    assert f"torchcomms.torchcomm_{case.op}" in graphs.code[0]
    # Waits are there exactly where something may go on.
    assert ("wait_tensors" in graphs.code[0]) == async_op
    own = [name for name in calls if name.name == case.op]
    # A barrier or a message has no result that keeps it in the graph.
    assert len(own) == 2 * max(
        1,
        graphs.code[0].count(f"torchcomm_{case.op}(")
        + graphs.code[0].count(f"torchcomm_{case.op}_("),
    ), calls


def runs_as_eagerly(rank: Rank, backend: str, async_op: bool, first: int, step: int) -> None:
    comm = rank.comm(backend)
    for case in CASES[first::step]:
        _check(comm, case, async_op)


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("async_op", [False, True])
def test_every_operation(ranks: MakeRanks, async_op: bool, first: int) -> None:
    run(ranks(2), runs_as_eagerly, "ctran", async_op, first, 3)


def test_on_gloo(ranks: MakeRanks) -> None:
    """Graphs are the same for all backends: some operations of each kind."""
    run(ranks(2), runs_as_eagerly, "gloo", True, 0, 4)
