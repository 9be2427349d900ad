"""What compiled functions are tested with: every operation as a method, called as programs do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchcomms import ReduceOp, TorchComm

ROWS = 3


@dataclass(frozen=True)
class Case:
    """`run(comm, tensors, async_op)` changes its tensors, the first of which depend on the rank."""

    op: str
    run: Callable[[TorchComm, list[Tensor], bool], Any]
    make: Callable[[int, int], list[Tensor]]


def _data(rank: int, *shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randint(1, 9, shape, generator=generator).double()


def _one(rank: int, size: int) -> list[Tensor]:
    return [_data(rank, size * ROWS, 2)]


def _gathers(rank: int, size: int) -> list[Tensor]:
    return [_data(rank, ROWS, 2), *(torch.full((ROWS, 2), -1.0).double() for _ in range(size))]


def _gathers_rows(rank: int, size: int) -> list[Tensor]:
    outputs = [torch.full((r + 1, 2), -1.0).double() for r in range(size)]
    return [_data(rank, rank + 1, 2), *outputs]


def _scatters(rank: int, size: int) -> list[Tensor]:
    return [
        torch.full((ROWS, 2), -1.0).double(),
        *(_data(rank, ROWS, 2, seed=s) for s in range(size)),
    ]


def _scatters_rows(rank: int, size: int) -> list[Tensor]:
    inputs = [_data(rank, r + 1, 2, seed=r) for r in range(size)]
    return [torch.full((rank + 1, 2), -1.0).double(), *inputs]


def _single(rank: int, size: int) -> list[Tensor]:
    return [torch.full((size * ROWS, 2), -1.0).double(), _data(rank, size * ROWS, 2)]


def _gathers_single(rank: int, size: int) -> list[Tensor]:
    return [torch.full((size * ROWS, 2), -1.0).double(), _data(rank, ROWS, 2)]


def _scatters_single(rank: int, size: int) -> list[Tensor]:
    return [torch.full((ROWS, 2), -1.0).double(), _data(rank, size * ROWS, 2)]


def _all_to_all(rank: int, size: int) -> list[Tensor]:
    inputs = [_data(rank, rank + r + 1, seed=r) for r in range(size)]
    return [*inputs, *(torch.full((rank + r + 1,), -1.0).double() for r in range(size))]


def _all_to_all_rows(rank: int, size: int) -> list[Tensor]:
    count = sum(rank + r + 1 for r in range(size))
    return [torch.full((count, 2), -1.0).double(), _data(rank, count, 2)]


def _splits(comm: TorchComm) -> list[int]:
    return [comm.get_rank() + r + 1 for r in range(comm.get_size())]


def _scatter(comm: TorchComm, t: list[Tensor], async_op: bool) -> None:
    comm.scatter(t[0], t[1:] if comm.get_rank() == 1 else None, 1, async_op).wait()


def _gather(comm: TorchComm, t: list[Tensor], async_op: bool) -> None:
    comm.gather(t[1:] if comm.get_rank() == 1 else [], t[0], 1, async_op).wait()


def _ring(comm: TorchComm, t: list[Tensor], async_op: bool) -> None:
    rank, size = comm.get_rank(), comm.get_size()
    if rank == 0:
        comm.send(t[0], 1, async_op).wait()
        comm.recv(t[0], size - 1, async_op).wait()
    else:
        received = torch.empty_like(t[0])
        comm.recv(received, rank - 1, async_op).wait()
        comm.send(received + t[0], (rank + 1) % size, async_op).wait()
        t[0].copy_(received)


def _batch(comm: TorchComm, t: list[Tensor], async_op: bool) -> None:
    rank, size = comm.get_rank(), comm.get_size()
    batch = comm.batch_op_create()
    for r in range(size):
        if r != rank:
            batch.send(t[0], r, tag=r)
            batch.recv(t[1 + r], r, tag=rank)
    batch.issue(async_op).wait()


def _barrier(comm: TorchComm, t: list[Tensor], async_op: bool) -> None:
    comm.barrier(async_op).wait()
    t[0].add_(1)


CASES = [
    Case("all_reduce", lambda c, t, a: c.all_reduce(t[0], ReduceOp.SUM, a).wait(), _one),
    Case("broadcast", lambda c, t, a: c.broadcast(tensor=t[0], root=1, async_op=a).wait(), _one),
    Case("reduce", lambda c, t, a: c.reduce(t[0], 0, ReduceOp.MAX, a).wait(), _one),
    Case("all_gather", lambda c, t, a: c.all_gather(t[1:], t[0], a).wait(), _gathers),
    Case("all_gather_v", lambda c, t, a: c.all_gather_v(t[1:], t[0], a).wait(), _gathers_rows),
    Case(
        "all_gather_single",
        lambda c, t, a: c.all_gather_single(t[0], t[1], a).wait(),
        _gathers_single,
    ),
    Case(
        "reduce_scatter",
        lambda c, t, a: c.reduce_scatter(t[0], t[1:], ReduceOp.MIN, a).wait(),
        _scatters,
    ),
    Case(
        "reduce_scatter_v",
        lambda c, t, a: c.reduce_scatter_v(t[0], t[1:], ReduceOp.SUM, a).wait(),
        _scatters_rows,
    ),
    Case(
        "reduce_scatter_single",
        lambda c, t, a: c.reduce_scatter_single(t[0], t[1], ReduceOp.PRODUCT, a).wait(),
        _scatters_single,
    ),
    Case("all_to_all_single", lambda c, t, a: c.all_to_all_single(t[0], t[1], a).wait(), _single),
    Case(
        "all_to_all_v_single",
        lambda c, t, a: c.all_to_all_v_single(
            t[0], t[1], output_splits=_splits(c), input_splits=_splits(c), async_op=a
        ).wait(),
        _all_to_all_rows,
    ),
    Case(
        "all_to_all",
        lambda c, t, a: c.all_to_all(t[len(t) // 2 :], t[: len(t) // 2], a).wait(),
        _all_to_all,
    ),
    Case("scatter", _scatter, _scatters),
    Case("gather", _gather, _gathers),
    Case(
        "gather_single", lambda c, t, a: c.gather_single(t[0], t[1], 0, a).wait(), _gathers_single
    ),
    Case("barrier", _barrier, _one),
    Case("send", _ring, _one),
    Case("recv", _ring, _one),
    Case("batch_op_issue", _batch, _gathers),
]


# Rows whose numbers stand in tensors: first what is written.


def _counts(rank: int, size: int) -> list[int]:
    """Rows for each rank, and from it."""
    return [1 + (rank + r) % 2 for r in range(size)]


def _rows_in_order(rank: int, size: int) -> list[Tensor]:
    counts = _counts(rank, size)
    room = torch.full((sum(counts) + 1, 2), -1.0).double()
    told = torch.full((size,), -1)
    return [room, told, _data(rank, sum(counts), 2), torch.tensor(counts)]


def _rows_known(rank: int, size: int) -> list[Tensor]:
    room, _, sent, counts = _rows_in_order(rank, size)
    return [room, sent, counts.clone(), counts]


def _chunks(rank: int, size: int) -> list[Tensor]:
    """Two chunks, of two rows and one; the second goes to everybody."""
    listed = [[0, 1] if (rank + r) % 2 == 0 else [1] for r in range(size)]
    indices = torch.tensor([index for part in listed for index in part])
    rooms = [torch.full((8,), -1.0).double() for _ in range(size)]
    counts = torch.tensor([len(part) for part in listed])
    told = torch.full((2 * size,), -1)
    return [told, _data(rank, 6), torch.tensor([2, 1]), indices, counts, *rooms]


def _chunks_together(rank: int, size: int) -> list[Tensor]:
    _, *sent = _chunks(rank, size)[:5]
    return [torch.full((8 * size,), -1.0).double(), *sent]


def _rows_once(rank: int, size: int) -> list[Tensor]:
    room = torch.full((2 * size, 2), -1.0).double()
    told = torch.full((size,), -1)
    listed = torch.tensor([(rank + r) % 3 for r in range(2 * size)])
    return [room, told, _data(rank, 3, 2), listed, torch.tensor([2] * size)]


def _rows_back(rank: int, size: int) -> list[Tensor]:
    _, _, sent, listed, counts = _rows_once(rank, size)
    weights = torch.arange(2.0 * size) / 4
    return [sent, _data(rank, 2 * size, 2, seed=1), weights, counts.clone(), listed, counts]


def _dispatch(comm: TorchComm, t: list[Tensor], async_op: bool) -> None:
    told, sent, sizes, indices, counts, *rooms = t
    comm.alltoallv_dynamic_dispatch(
        rooms, told, sent, sizes, indices, counts, 2, async_op=async_op
    ).wait()


ROW_EXCHANGES = [
    Case(
        "all_to_all_v_dynamic",
        lambda c, t, a: c.all_to_all_v_dynamic(t[0], t[2], t[1], t[3], a).wait(),
        _rows_in_order,
    ),
    Case(
        "device_alltoallv_single",
        lambda c, t, a: c.device_alltoallv_single(
            t[0], t[1], output_split_sizes=t[2], input_split_sizes_gpu=t[3], async_op=a
        ).wait(),
        _rows_known,
    ),
    Case("alltoallv_dynamic_dispatch", _dispatch, _chunks),
    Case(
        "alltoallv_dynamic_combine",
        lambda c, t, a: c.alltoallv_dynamic_combine(*t[:5], hidden_dim=2, async_op=a).wait(),
        _chunks_together,
    ),
    Case(
        "all_to_all_v_dedup",
        lambda c, t, a: c.all_to_all_v_dedup(t[0], t[2], t[1], t[3], t[4], a).wait(),
        _rows_once,
    ),
    Case(
        "all_to_all_v_dedup_combine",
        lambda c, t, a: c.all_to_all_v_dedup_combine(*t, a).wait(),
        _rows_back,
    ),
]
