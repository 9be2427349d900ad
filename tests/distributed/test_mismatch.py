"""Ranks that call different things are told so, with both sides."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import Rank, Ranks
from harness.failing import (
    barrier,
)

import torchcomms
from torchcomms import ReduceOp

MakeRanks = Callable[[int], Ranks]
BACKEND = "ctran"


def _ones(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(count, dtype=dtype)


# What rank 1 calls, what the others call, and how either is described.
DISAGREEMENTS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], str, str]] = {
    "operation": (
        lambda c: c.broadcast(_ones(8), 0, False),
        lambda c: c.all_reduce(_ones(8), ReduceOp.SUM, False),
        "broadcast(float32, 8 elements, root 0)",
        "all_reduce(sum, float32, 8 elements)",
    ),
    "type": (
        lambda c: c.all_reduce(_ones(8, torch.int32), ReduceOp.SUM, False),
        lambda c: c.all_reduce(_ones(8), ReduceOp.SUM, False),
        "all_reduce(sum, int32, 8 elements)",
        "all_reduce(sum, float32, 8 elements)",
    ),
    "count": (
        lambda c: c.all_reduce(_ones(9), ReduceOp.SUM, False),
        lambda c: c.all_reduce(_ones(8), ReduceOp.SUM, False),
        "all_reduce(sum, float32, 9 elements)",
        "all_reduce(sum, float32, 8 elements)",
    ),
    "count, of which one is large": (
        lambda c: c.all_reduce(_ones(9), ReduceOp.SUM, False),
        lambda c: c.all_reduce(_ones(1_000_000), ReduceOp.SUM, False),
        "all_reduce(sum, float32, 9 elements)",
        "all_reduce(sum, float32, 1000000 elements)",
    ),
    "count, both large": (
        lambda c: c.all_reduce(_ones(999_999), ReduceOp.SUM, False),
        lambda c: c.all_reduce(_ones(1_000_000), ReduceOp.SUM, False),
        "all_reduce(sum, float32, 999999 elements)",
        "all_reduce(sum, float32, 1000000 elements)",
    ),
    "reduction": (
        lambda c: c.all_reduce(_ones(8), ReduceOp.MAX, False),
        lambda c: c.all_reduce(_ones(8), ReduceOp.SUM, False),
        "all_reduce(max, float32, 8 elements)",
        "all_reduce(sum, float32, 8 elements)",
    ),
    "root": (
        lambda c: c.broadcast(_ones(8), 1, False),
        lambda c: c.broadcast(_ones(8), 0, False),
        "broadcast(float32, 8 elements, root 1)",
        "broadcast(float32, 8 elements, root 0)",
    ),
    "asynchronous": (
        lambda c: c.all_reduce(_ones(9), ReduceOp.SUM, True).wait(),
        lambda c: c.all_reduce(_ones(8), ReduceOp.SUM, True).wait(),
        "all_reduce(sum, float32, 9 elements)",
        "all_reduce(sum, float32, 8 elements)",
    ),
    "order": (
        lambda c: (c.barrier(False), c.all_reduce(_ones(8), ReduceOp.SUM, False)),
        lambda c: (c.all_reduce(_ones(8), ReduceOp.SUM, False), c.barrier(False)),
        "barrier()",
        "all_reduce(sum, float32, 8 elements)",
    ),
}


def then_barrier(comm: Any, call: Callable[[Any], Any]) -> None:
    """Whoever needs nobody in a call is told by the next."""
    call(comm)
    barrier(comm)


def disagrees(rank: Rank, about: str) -> tuple[list[int], str]:
    odd, usual, _, _ = DISAGREEMENTS[about]
    with pytest.raises(torchcomms.MismatchError) as error:
        # The others may disagree before it is there: then its creation fails.
        then_barrier(rank.comm(BACKEND), odd if rank.rank == 1 else usual)
    return error.value.ranks, str(error.value)


@pytest.mark.parametrize("about", DISAGREEMENTS)
def test_disagreement_is_told_with_both_sides(fresh_ranks: MakeRanks, about: str) -> None:
    _, _, odd, usual = DISAGREEMENTS[about]
    for ranks, message in fresh_ranks(3).run(disagrees, about):
        assert 1 in ranks
        assert f"rank 1 called {odd}" in message
        assert re.search(rf"rank [02] called {re.escape(usual)}", message), message


def parts_at_the_end(rank: Rank) -> tuple[list[int], str] | None:
    comm = rank.new_comm(BACKEND, "parted")
    comm.broadcast(_ones(8), rank.rank, async_op=False)  # a root waits for nobody
    told = None
    try:
        comm.finalize()
    except torchcomms.MismatchError as error:
        told = error.ranks, str(error)
    with pytest.raises(torchcomms.CommError, match="already finalized"):
        barrier(comm)
    return told


def test_disagreement_about_the_last_call_is_told_by_finalize(fresh_ranks: MakeRanks) -> None:
    told = [what for what in fresh_ranks(2).run(parts_at_the_end) if what]
    assert told
    for ranks, message in told:
        assert sorted(ranks) == [0, 1]
        assert "root 0" in message
        assert "root 1" in message


def disagrees_about_splits(rank: Rank) -> str:
    comm = rank.comm(BACKEND)
    sends = [3, 4]
    receives = [3, 3] if rank.rank == 0 else [5, 4]  # rank 0 sends 4, not 5

    def exchange(comm: Any) -> None:
        comm.all_to_all_v_single(_ones(10), _ones(10), receives, sends, async_op=False)

    with pytest.raises(torchcomms.MismatchError) as error:
        then_barrier(comm, exchange)
    return str(error.value)


def test_disagreement_about_splits_is_told(fresh_ranks: MakeRanks) -> None:
    for message in fresh_ranks(2).run(disagrees_about_splits):
        assert "rank 0 sends 4 elements to rank 1, which expects 5" in message


def sends_another_size(rank: Rank) -> str | None:
    comm = rank.comm(BACKEND)
    if rank.rank == 0:
        comm.send(_ones(5), 1, async_op=False)
        return None
    with pytest.raises(torchcomms.MismatchError) as error:
        comm.recv(_ones(6), 0, async_op=False)
    return str(error.value)


def test_a_message_of_another_size_is_told(fresh_ranks: MakeRanks) -> None:
    message = fresh_ranks(2).run(sends_another_size)[1]
    assert "rank 1 called recv(float32, 6 elements, from rank 0)" in message
    assert "rank 0 called send(float32, 5 elements, to rank 1)" in message
