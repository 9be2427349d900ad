"""Communicators whose ranks are threads of the test's process."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

import torchcomms
from torchcomms import CommOptions, ReduceOp, TorchComm

CPU = torch.device("cpu")
HANG_GUARD = timedelta(seconds=120)
_numbers = itertools.count()


@pytest.fixture
def fake() -> Callable[..., TorchComm]:
    """`fake(rank, size)`: a communicator that checks its arguments and does nothing."""

    def make(rank: int = 1, size: int = 4, **arguments: Any) -> TorchComm:
        options = CommOptions()
        options.rank, options.size = rank, size
        arguments.setdefault("device", CPU)
        return torchcomms.new_comm("fake", options=options, **arguments)

    return make


@pytest.fixture
def alone() -> TorchComm:
    """A communicator of the engine with one rank."""
    options = CommOptions()
    options.rank, options.size = 0, 1
    return torchcomms.new_comm("ctran", CPU, options=options)


@pytest.fixture
def threads() -> Callable[..., list[TorchComm]]:
    """`threads(size)`: the communicators of `size` ranks of the engine in this process."""

    def make(size: int, **arguments: Any) -> list[TorchComm]:
        arguments.setdefault("timeout", HANG_GUARD)
        arguments.setdefault("abort_process_on_timeout_or_error", False)
        arguments.setdefault("name", f"threads-{next(_numbers)}")
        store = dist.HashStore()

        def one(rank: int) -> TorchComm:
            options = CommOptions()
            options.rank, options.size = rank, size
            return torchcomms.new_comm("ctran", CPU, options=options, store=store, **arguments)

        return on_each(range(size), one)

    return make


def on_each(ranks: Any, call: Callable[[Any], Any]) -> list[Any]:
    """Results of `call` on each, at the same time."""
    ranks = list(ranks)
    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(call, ranks))


@pytest.fixture(name="on_each")
def _on_each() -> Callable[[Any, Callable[[Any], Any]], list[Any]]:
    return on_each


@pytest.fixture
def every_operation() -> Callable[[TorchComm, torch.Tensor], list[Callable[[], object]]]:
    """Calls of every operation; see _every_operation."""
    return _every_operation


def _every_operation(comm: TorchComm, bad: torch.Tensor) -> list[Callable[[], object]]:
    """A call of each operation, in turn with `bad` (of 8 elements) as each of its tensors."""
    good, part, whole = torch.zeros(8), torch.zeros(2), torch.zeros(32)
    parts = [torch.zeros(2) for _ in range(4)]
    op = ReduceOp.SUM

    def batch() -> None:
        collected = comm.batch_op_create()
        collected.send(good, 0)
        collected.recv(bad, 0)
        collected.issue(False)

    return [
        lambda: comm.send(bad, 0, False),
        lambda: comm.recv(bad, 0, False),
        batch,
        lambda: comm.broadcast(bad, 0, False),
        lambda: comm.all_reduce(bad, op, False),
        lambda: comm.reduce(bad, 0, op, False),
        lambda: comm.all_gather([good, good, bad, good], good, False),
        lambda: comm.all_gather([good] * 4, bad, False),
        lambda: comm.all_gather_v([bad, good, good, good], good, False),
        lambda: comm.all_gather_v([good] * 4, bad, False),
        lambda: comm.all_gather_single(bad, part, False),
        lambda: comm.all_gather_single(whole, bad, False),
        lambda: comm.reduce_scatter(bad, [good] * 4, op, False),
        lambda: comm.reduce_scatter(good, [good, good, good, bad], op, False),
        lambda: comm.reduce_scatter_v(bad, [good] * 4, op, False),
        lambda: comm.reduce_scatter_v(good, [good, good, good, bad], op, False),
        lambda: comm.reduce_scatter_single(bad, whole, op, False),
        lambda: comm.reduce_scatter_single(part, bad, op, False),
        lambda: comm.all_to_all_single(bad, good, False),
        lambda: comm.all_to_all_single(good, bad, False),
        lambda: comm.all_to_all_v_single(bad, good, [2] * 4, [2] * 4, False),
        lambda: comm.all_to_all_v_single(good, bad, [2] * 4, [2] * 4, False),
        lambda: comm.all_to_all([bad, *parts[1:]], parts, False),
        lambda: comm.all_to_all(parts, [bad, *parts[1:]], False),
        lambda: comm.scatter(bad, [good] * 4, 1, False),
        lambda: comm.scatter(good, [good, bad, good, good], 1, False),
        lambda: comm.gather([good, good, good, bad], good, 1, False),
        lambda: comm.gather([good] * 4, bad, 1, False),
        lambda: comm.gather_single(bad, part, 1, False),
        lambda: comm.gather_single(whole, bad, 1, False),
    ]
