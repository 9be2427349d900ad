"""Methods of communicators, windows and batches in compiled functions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from compile_ranks import compiled, run
from compile_ranks.cases import CASES, ROW_EXCHANGES, Case
from harness import Rank, Ranks
from torch import Tensor

from torchcomms import OpName, TorchComm, functional

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


def exchanges_rows_as_eagerly(rank: Rank, async_op: bool) -> None:
    comm = rank.comm("ctran")
    for case in ROW_EXCHANGES:
        _check(comm, case, async_op)


def persists(rank: Rank, async_op: bool) -> None:
    comm = rank.comm("ctran")
    gathered = comm.all_gather_p_init(torch.zeros(3 * rank.size))
    exchanged = comm.all_to_all_p_init(torch.zeros(rank.size))

    def step(x: Tensor) -> Tensor:
        comm.all_gather_p_exec(gathered, x + 1, async_op).wait()
        own = torch.arange(rank.size) + 10.0 * rank.rank
        comm.all_to_all_p_exec(handle=exchanged, input=own, async_op=async_op).wait()
        assert gathered.output is not None
        assert exchanged.output is not None
        return torch.cat([gathered.output, exchanged.output])

    traced, graphs = compiled(step)
    for seed in range(2):
        result = traced(torch.full((3,), rank.rank + 10.0 * seed))
        expected = [r + 10.0 * seed + 1 for r in range(rank.size) for _ in range(3)]
        expected += [rank.rank + 10.0 * r for r in range(rank.size)]
        assert result.tolist() == expected
    assert len(graphs.code) == 1
    comm.all_gather_p_free(gathered)
    with pytest.raises(Exception, match="all_gather_p_exec"):
        traced(torch.zeros(3))


def refuses_gradients_of_rows(rank: Rank) -> None:
    comm = rank.comm("ctran")
    name = functional.register(comm)
    room, told, sent, counts = ROW_EXCHANGES[0].make(rank.rank, rank.size)
    sent.requires_grad_()
    with pytest.raises(RuntimeError, match="all_to_all_v_dynamic has no gradient"):
        torch.ops.torchcomms.torchcomm_all_to_all_v_dynamic(name, room, sent, told, counts)


@pytest.mark.parametrize("async_op", [False, True])
def test_row_exchanges(ranks: MakeRanks, async_op: bool) -> None:
    run(ranks(2), exchanges_rows_as_eagerly, async_op)


@pytest.mark.parametrize("async_op", [False, True])
def test_persistent_operations(ranks: MakeRanks, async_op: bool) -> None:
    run(ranks(2), persists, async_op)


def test_rows_have_no_gradient(ranks: MakeRanks) -> None:
    run(ranks(2), refuses_gradients_of_rows)


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("async_op", [False, True])
def test_every_operation(ranks: MakeRanks, async_op: bool, first: int) -> None:
    run(ranks(2), runs_as_eagerly, "ctran", async_op, first, 3)


def test_on_gloo(ranks: MakeRanks) -> None:
    """Graphs are the same for all backends: some operations of each kind."""
    run(ranks(2), runs_as_eagerly, "gloo", True, 0, 4)
