"""Operations whose tests are in other files, over RDMA: the same bodies, and each rank is a host of
its own that has devices of the stand-in."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from harness import Rank, Ranks, standins

from torchcomms import ReduceOp, plan

FreshRanks = Callable[[int], Ranks]


def bodies_of(file: str) -> ModuleType:
    path = Path(__file__).with_name(f"{file}.py")
    spec = importlib.util.spec_from_file_location(f"bodies_of_{file}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rows = bodies_of("test_row_exchanges")
plans = bodies_of("test_plans")
members = bodies_of("test_reconfigure")
windows = bodies_of("test_windows")
mismatch = bodies_of("test_mismatch")


def take_standin(rank: Rank, library: str, qps: int) -> None:
    os.environ.update(
        CTRAN_VERBS_LIBRARY=library, CTRAN_HOST=f"host{rank.rank}", CTRAN_IB_QPS=str(qps)
    )


def uses_rdma(rank: Rank) -> None:
    """What the ranks have in their environment makes all pairs of a communicator change over."""
    comm = rank.new_comm("ctran", "uses rdma")
    everybody = torch.zeros(1, dtype=torch.int32)
    network: list[str] = []
    for _ in range(1000):
        network = comm.explain("all_reduce", 1000).network
        everybody[0] = all(": RDMA (standin_" in path for path in network)
        comm.all_reduce(everybody, ReduceOp.MIN, async_op=False)
        if everybody.item():
            break
    assert len(network) > 0
    assert everybody.item() == 1, network
    comm.finalize()


def over_rdma(ranks: Ranks, qps: int = 1) -> Ranks:
    ranks.run(take_standin, str(standins.verbs()), qps)
    ranks.run(uses_rdma)
    return ranks


@pytest.mark.parametrize("qps", [1, 2])
def test_row_exchanges(fresh_ranks: FreshRanks, qps: int) -> None:
    ranks = over_rdma(fresh_ranks(3), qps)
    ranks.run(rows.exchanges, 1)
    ranks.run(rows.overflows, 1)


@pytest.mark.parametrize("qps", [1, 2])
def test_plans(fresh_ranks: FreshRanks, qps: int) -> None:
    over_rdma(fresh_ranks(4), qps).run(plans.every_collective, list(plan.library()), 4)


def test_members_change(fresh_ranks: FreshRanks) -> None:
    ranks = over_rdma(fresh_ranks(4))
    ranks.run(members.changes, 1)
    ranks.run(members.leaves_work, 1)


@pytest.mark.parametrize("qps", [1, 2])
def test_windows(fresh_ranks: FreshRanks, qps: int) -> None:
    ranks = over_rdma(fresh_ranks(3), qps)
    for count in (1, 3000, 400_000):
        ranks.run(windows.registers_ordinary_tensors, count, 3)
        ranks.run(windows.allocates, count, 3)
    ranks.run(windows.passes_a_token, 3)
    for allocated in (False, True):
        ranks.run(windows.flushes, allocated, 3)
    ranks.run(windows.refuses, 3)


ABOUT: list[Any] = list(mismatch.DISAGREEMENTS)


@pytest.mark.parametrize("about", ABOUT[:: max(1, len(ABOUT) // 4)])
def test_disagreement_is_told_with_both_sides(fresh_ranks: FreshRanks, about: str) -> None:
    _, _, odd, usual = mismatch.DISAGREEMENTS[about]
    for ranks, message in over_rdma(fresh_ranks(3)).run(mismatch.disagrees, about):
        assert 1 in ranks
        assert f"rank 1 called {odd}" in message
        assert f" called {usual}" in message


def test_a_message_of_another_size_is_told(fresh_ranks: FreshRanks) -> None:
    message = over_rdma(fresh_ranks(2)).run(mismatch.sends_another_size)[1]
    assert "rank 1 called recv(float32, 6 elements, from rank 0)" in message
    assert "rank 0 called send(float32, 5 elements, to rank 1)" in message
