"""Windows in compiled functions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from compile_ranks import compiled, run
from harness import Rank, Ranks
from torch import Tensor

from torchcomms import SignalCmpOp

MakeRanks = Callable[[int], Ranks]


def exchanges(rank: Rank) -> None:
    comm = rank.comm("ctran")
    window = comm.window_allocate(8 * 4)
    peer = 1 - rank.rank

    def exchange(x: Tensor, async_op: bool) -> tuple[Tensor, Tensor, Tensor]:
        work = window.put(x * 2, peer, 0, async_op)
        y = x + 1
        work.wait()
        window.flush(peer, False)
        window.signal(peer, async_op).wait()
        window.wait_signal(peer, async_op).wait()
        mine = window.get_tensor(rank.rank, [4], torch.float64)
        assert mine is not None
        own = mine + 0
        window.signal(signal_disp=3, signal_val=7, dst_rank=peer, async_op=False)
        window.wait_signal(3, 7, SignalCmpOp.GE, False)
        got = torch.zeros(4, dtype=torch.float64)
        window.get(got, peer, 0, async_op).wait()
        comm.barrier(False)
        return own, got, y

    for async_op in (False, True):
        traced, graphs = compiled(exchange)
        for step in range(2):
            x = torch.arange(4.0, dtype=torch.float64) + 10 * rank.rank + 100 * step
            theirs = torch.arange(4.0, dtype=torch.float64) + 10 * peer + 100 * step
            own, got, y = traced(x, async_op)
            torch.testing.assert_close(own, theirs * 2)
            torch.testing.assert_close(got, x * 2)
            torch.testing.assert_close(y, x + 1)
            comm.barrier(False)
        assert len(graphs.code) == 1
        for name in ("put", "flush", "signal", "wait_signal", "get_tensor", "set_signal", "get"):
            assert f"torchcomm_window_{name}" in graphs.code[0]


def maps(rank: Rank) -> None:
    comm = rank.comm("ctran")
    window = comm.window_allocate(4 * 4)
    mine = window.get_tensor(rank.rank, [4], torch.float32)
    assert mine is not None
    mine.fill_(rank.rank + 1.0)
    comm.barrier(False)

    def read(x: Tensor) -> Tensor:
        theirs = window.get_tensor(1 - rank.rank, sizes=[4], dtype=torch.float32)
        assert theirs is not None
        return x + theirs

    traced, _ = compiled(read)
    torch.testing.assert_close(traced(torch.zeros(4)), torch.full((4,), 2.0 - rank.rank))
    comm.barrier(False)


def test_operations(ranks: MakeRanks) -> None:
    run(ranks(2), exchanges)


def test_mapped_memory(ranks: MakeRanks) -> None:
    run(ranks(2), maps)
