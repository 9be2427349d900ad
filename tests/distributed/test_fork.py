"""Processes that ranks fork are harmless."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import suppress

import pytest
import torch
from harness import Rank, Ranks
from harness.failing import (
    all_reduce,
    wait_for_async,
)

import torchcomms
from torchcomms import ReduceOp

MakeRanks = Callable[[int], Ranks]
BACKEND = "ctran"


def forks_between_calls(rank: Rank, backend: str) -> int:
    comm = rank.comm(backend)
    all_reduce(comm)
    wait_for_async(comm)  # the threads of the library run
    child = os.fork()
    if child == 0:
        try:
            all_reduce(comm)
        except torchcomms.CommError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    _, status = os.waitpid(child, 0)
    all_reduce(comm)
    wait_for_async(comm)
    return os.waitstatus_to_exitcode(status)


@pytest.mark.parametrize("backend", ["ctran", "gloo"])
def test_a_forked_child_is_harmless_and_told(fresh_ranks: MakeRanks, backend: str) -> None:
    assert fresh_ranks(2).run(forks_between_calls, backend) == [0, 0]


def lets_go_in_children(rank: Rank, backend: str) -> list[int]:
    comm = rank.new_comm(backend, "let go")
    work = comm.all_reduce(torch.ones(1), ReduceOp.SUM, async_op=True)
    codes = []
    for finalizes in (True, False):
        child = os.fork()
        if child == 0:
            if finalizes:
                with suppress(torchcomms.CommError):
                    comm.finalize()
            destroyed = weakref.ref(comm)
            del comm, work
            os._exit(0 if destroyed() is None else 1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    work.wait()
    comm.finalize()
    return codes


@pytest.mark.parametrize("backend", ["ctran", "gloo"])
def test_a_forked_child_may_let_go_of_a_communicator(fresh_ranks: MakeRanks, backend: str) -> None:
    assert fresh_ranks(2).run(lets_go_in_children, backend) == [[0, 0]] * 2


def loads_data(rank: Rank) -> list[float]:
    from torch.utils.data import DataLoader, TensorDataset

    comm = rank.comm(BACKEND)
    wait_for_async(comm)
    data = TensorDataset(torch.arange(8.0))
    sums = []
    for (part,) in DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="fork"):
        comm.all_reduce(part, ReduceOp.SUM, async_op=False)
        sums.append(part.sum().item())
    return sums


def test_workers_of_a_data_loader_are_harmless(fresh_ranks: MakeRanks) -> None:
    assert fresh_ranks(2).run(loads_data) == [[2.0, 10.0, 18.0, 26.0]] * 2
