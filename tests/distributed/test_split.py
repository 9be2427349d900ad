"""Communicators of some ranks of another."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
from harness import Rank, Ranks

import torchcomms
from torchcomms import ReduceOp

MakeRanks = Callable[[int], Ranks]
BACKEND = "ctran"


def _sum(comm: torchcomms.TorchComm) -> float:
    tensor = torch.full((3,), comm.get_rank() + 1.0)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    return tensor[0].item()


def splits(rank: Rank) -> None:
    comm = rank.comm(BACKEND)
    low = comm.split([0, 1] if rank.rank < 2 else [], "low")
    assert (low is None) == (rank.rank >= 2)
    if low is not None:
        assert low.get_name() == "low"
        assert (low.get_rank(), low.get_size()) == (rank.rank, 2)
        assert _sum(low) == 3.0
        assert not low.get_options().abort_process_on_timeout_or_error
        assert low.get_options().timeout == comm.get_options().timeout
    # Order permutes.
    back = comm.split([3, 2, 1, 0], "back", timeout=timedelta(seconds=9))
    assert back is not None
    assert back.get_rank() == 3 - rank.rank
    assert back.get_ranks() == [3, 2, 1, 0]
    assert back.get_options().timeout == timedelta(seconds=9)
    gathered = [torch.zeros(1) for _ in range(4)]
    back.all_gather(gathered, torch.tensor([float(rank.rank)]), async_op=False)
    assert [g.item() for g in gathered] == [3.0, 2.0, 1.0, 0.0]
    # Of a child, by the child's ranks.
    pair = back.split([0, 2] if back.get_rank() in (0, 2) else [1, 3], "pair")
    assert pair is not None
    assert pair.get_ranks() == ([3, 1] if rank.rank in (3, 1) else [2, 0])
    assert _sum(pair) == 3.0
    # All groups at once.
    groups = [[0, 3], [1, 2]]
    of_groups = comm.split(rank_groups=groups, name="groups")
    assert of_groups is not None
    assert of_groups.get_ranks() == (groups[0] if rank.rank in groups[0] else groups[1])
    assert comm.split(rank_groups=[[0]], name="one") is not None or rank.rank != 0
    # A name is not needed, and a failed child leaves its parent alone.
    unnamed = comm.split([0, 1, 2, 3])
    assert unnamed is not None
    assert _sum(unnamed) == 10.0
    unnamed.abort()
    assert unnamed.is_aborted()
    assert _sum(comm) == 10.0


def test_split(ranks: MakeRanks) -> None:
    ranks(4).run(splits)


def refuses_to_split(rank: Rank) -> None:
    comm = rank.comm(BACKEND)
    other = (rank.rank + 1) % rank.size
    for message, wrong in [
        (f"Current rank {rank.rank} is not included in the provided ranks list", [other]),
        (f"Rank {rank.rank} appears multiple times in ranks", [rank.rank, rank.rank]),
        ("Invalid rank 7 in ranks. Valid ranks are 0 to 2", [rank.rank, 7]),
        ("Invalid rank -1 in ranks", [-1, rank.rank]),
    ]:
        with pytest.raises(torchcomms.CommError, match=message):
            comm.split(wrong, "wrong")
    with pytest.raises(TypeError, match="rank_groups"):
        comm.split()
    with pytest.raises(TypeError, match="rank_groups"):
        comm.split([0], rank_groups=[[0]])
    _sum(comm)


def test_split_refuses_what_makes_no_group(ranks: MakeRanks) -> None:
    ranks(3).run(refuses_to_split)
