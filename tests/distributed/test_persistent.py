"""Persistent all-gather: prepared once, carried out again and again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from harness import Rank, Ranks

import torchcomms

MakeRanks = Callable[[int], Ranks]


def gathers_again_and_again(rank: Rank, backend: str) -> list[list[float]]:
    comm = rank.comm(backend)
    output = torch.full((2 * rank.size,), -1.0)
    handle = comm.all_gather_p_init(output)
    seen = []
    for step in range(3):
        part = torch.full((2,), 10.0 * step + rank.rank)
        comm.all_gather_p_exec(handle, part, async_op=step == 1).wait()
        seen.append(output[::2].tolist())
    comm.all_gather_p_free(handle)
    assert handle.output is None
    return seen


@pytest.mark.parametrize("backend", ["ctran", "gloo"])
def test_it_gathers_again_and_again(ranks: MakeRanks, backend: str) -> None:
    expected = [[10.0 * step + r for r in range(3)] for step in range(3)]
    assert ranks(3).run(gathers_again_and_again, backend) == [expected] * 3


def is_misused(rank: Rank) -> None:
    comm, other = rank.comm(), rank.new_comm("ctran", "other")
    for wrong in (torch.ones(3), torch.ones(4, 4).t()):
        with pytest.raises(torchcomms.CommError, match="output"):
            comm.all_gather_p_init(wrong)
    handle = comm.all_gather_p_init(torch.ones(4))
    with pytest.raises(torchcomms.CommError, match="another communicator"):
        other.all_gather_p_exec(handle, torch.ones(2), async_op=False)
    with pytest.raises(torchcomms.CommError, match="input_size"):
        comm.all_gather_p_exec(handle, torch.ones(3), async_op=False)
    comm.all_gather_p_free(handle)
    with pytest.raises(torchcomms.CommError, match="freed"):
        comm.all_gather_p_exec(handle, torch.ones(2), async_op=False)
    with pytest.raises(torchcomms.CommError, match="freed"):
        comm.all_gather_p_free(handle)


def test_misuse_is_told(ranks: MakeRanks) -> None:
    ranks(2).run(is_misused)
