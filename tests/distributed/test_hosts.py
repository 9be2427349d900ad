"""Ranks that count as on several hosts: the torch face does not know the difference."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from harness import Rank, Ranks

import torchcomms
from torchcomms import ReduceOp


def works_across_hosts(rank: Rank) -> None:
    host = f"host{rank.rank // 2}"
    comm = rank.new_comm("ctran", "hosts", hints={"ctran::host": host})
    total = sum(range(1, rank.size + 1))
    for count in (1, 300_000):
        for async_op in (False, True):
            tensor = torch.full((count,), rank.rank + 1.0)
            work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=async_op)
            if async_op:
                work.wait()
            assert (tensor == total).all()
    gathered = [torch.zeros(7) for _ in range(rank.size)]
    comm.all_gather(gathered, torch.full((7,), float(rank.rank)), async_op=False)
    assert all((part == r).all() for r, part in enumerate(gathered))
    after, before = (rank.rank + 1) % rank.size, (rank.rank - 1) % rank.size
    sent = comm.send(torch.full((200_000,), float(rank.rank)), after, async_op=True)
    got = torch.zeros(200_000)
    comm.recv(got, before, async_op=False)
    sent.wait()
    assert (got == before).all()
    # Whoever shares a host finds that out, and moves data through shared memory.
    first = rank.rank // 2 * 2
    local = comm.split([first, first + 1], "local")
    assert local is not None
    tensor = torch.ones(5)
    local.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    assert (tensor == 2).all()
    local.finalize()
    comm.finalize()


def test_operations_across_hosts(ranks: Callable[[int], Ranks]) -> None:
    ranks(4).run(works_across_hosts)


def tells_mismatch_across_hosts(rank: Rank) -> None:
    comm = rank.new_comm("ctran", "mismatch", hints={"ctran::host": f"host{rank.rank}"})
    with pytest.raises(torchcomms.CommError, match="differs"):
        comm.all_reduce(torch.ones(3 + rank.rank // 2), ReduceOp.SUM, async_op=False)


def test_mismatch_across_hosts(ranks: Callable[[int], Ranks]) -> None:
    ranks(3).run(tells_mismatch_across_hosts)
