"""all_to_all_v of which only the senders know the sizes, against what plain torch makes of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

POISON = -7.0
ROW = (2, 3)


def _part(tensor: Tensor, counts: Tensor, index: int) -> Tensor:
    first = int(counts[:index].sum())
    return tensor[first : first + int(counts[index])]


class Sent:
    """What one rank passes; every rank can tell that of every other."""

    def __init__(self, rank: int, size: int, seed: int, most: int) -> None:
        random = torch.Generator().manual_seed(1000 * seed + rank)

        def number(below: int, *shape: int) -> Tensor:
            return torch.randint(0, below, shape, generator=random)

        self.counts = number(most + 1, size)
        self.rows = int(self.counts.sum()) + 1
        place = torch.arange(self.rows * 6, dtype=torch.float32).reshape(self.rows, *ROW)
        self.input = place + 1000.0 * rank + seed
        self.indices = number(self.rows, int(self.counts.sum()))
        self.chunks = number(4, 3)
        self.chunk_counts = number(3, size)
        self.chunk_indices = number(3, int(self.chunk_counts.sum()))

    def in_order(self, peer: int) -> Tensor:
        return _part(self.input, self.counts, peer)

    def listed(self, peer: int) -> Tensor:
        return _part(self.indices, self.counts, peer)

    def listed_chunks(self, peer: int) -> list[int]:
        return [int(index) for index in _part(self.chunk_indices, self.chunk_counts, peer)]

    def chunked(self) -> Tensor:
        rows = int(self.chunks.sum())
        return self.input.flatten()[0] + torch.arange(rows * 4, dtype=torch.float32)

    def chunk(self, index: int) -> Tensor:
        return _part(self.chunked(), 4 * self.chunks, index)


def _room(rows: int) -> Tensor:
    return torch.full((rows, *ROW), POISON)


def in_order(comm: Any, seed: int, most: int, async_op: bool) -> None:
    """Rows one after another, on the CPU."""
    rank, size = comm.get_rank(), comm.get_size()
    all_sent = [Sent(r, size, seed, most) for r in range(size)]
    own = all_sent[rank]

    # In order, and the sizes are learned.
    expected = torch.cat([sent.in_order(rank) for sent in all_sent])
    output, sizes = _room(len(expected) + 2), torch.full((size,), -1)
    work = comm.all_to_all_v_dynamic(output, own.input, sizes, own.counts, async_op)
    assert work.wait()
    assert torch.equal(output[:-2], expected)
    assert (output[-2:] == POISON).all()
    assert sizes.tolist() == [int(sent.counts[rank]) for sent in all_sent]

    # The same with sizes that are known, in tensors; here, once they have come.
    told = torch.full((size,), -1)
    output = _room(len(expected))
    first = comm.all_to_all_single(told, own.counts, async_op)
    comm.device_alltoallv_single(output, own.input, told, own.counts, async_op).wait()
    assert first.wait()
    assert torch.equal(output, expected)


def listed(comm: Any, seed: int, most: int, async_op: bool) -> None:
    """Chunks and rows that are listed, of tensors of the communicator's device; and back."""
    rank, size, device = comm.get_rank(), comm.get_size(), comm.get_device()
    all_sent = [Sent(r, size, seed, most) for r in range(size)]
    own = all_sent[rank]

    # Chunks, into a tensor per sender; and one after another.
    parts = []
    for sent in all_sent:
        came = [sent.chunk(index) for index in sent.listed_chunks(rank)]
        parts.append(torch.cat(came) if came else torch.zeros(0))
    chunk_sizes = torch.full((size * 3,), -1, device=device)
    outputs = [torch.full((part.numel() + 8,), POISON, device=device) for part in parts]
    lists = [t.to(device) for t in (own.chunks, own.chunk_indices, own.chunk_counts)]
    chunked = own.chunked().to(device)
    comm.alltoallv_dynamic_dispatch(
        outputs, chunk_sizes, chunked, *lists, hidden_dim=4, async_op=async_op
    ).wait()
    for part, got in zip(parts, outputs, strict=True):
        assert torch.equal(got[:-8].cpu(), part)
        assert (got[-8:] == POISON).all()
    assert chunk_sizes.tolist() == [
        int(sent.chunks[index]) * sent.listed_chunks(rank).count(index)
        for sent in all_sent
        for index in range(3)
    ]
    together = torch.full((sum(map(len, parts)),), POISON, device=device)
    comm.alltoallv_dynamic_combine(together, chunked, *lists, 4, async_op).wait()
    assert torch.equal(together.cpu(), torch.cat(parts))

    # Listed rows, once per host; and back as sums.
    expected = torch.cat([sent.input[sent.listed(rank)] for sent in all_sent])
    indices, counts = own.indices.to(device), own.counts.to(device)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        output = _room(len(expected) + 1).to(device, dtype)
        sizes = torch.full((size,), -1, device=device)
        comm.all_to_all_v_dedup(
            output, own.input.to(device, dtype), sizes, indices, counts, async_op=async_op
        ).wait()
        assert torch.equal(output[:-1].cpu(), expected.to(dtype))
        assert (output[-1] == POISON).all()
        for weighted in (False, True):
            factors = torch.arange(len(expected), device=device).remainder(4) / 4
            weights = factors if weighted else None
            back = torch.full((own.rows, *ROW), POISON, dtype=dtype, device=device)
            comm.all_to_all_v_dedup_combine(
                back, output[:-1], weights, sizes, indices, counts, async_op
            ).wait()
            sums = torch.zeros(own.rows, *ROW, dtype=torch.float64)
            for peer in range(size):
                before = sum(int(sent.counts[peer]) for sent in all_sent[:rank])
                own_rows = own.listed(peer)
                by = (torch.arange(before, before + len(own_rows)) % 4 / 4)[:, None, None]
                rows = own.input.to(dtype).double()[own_rows]
                sums.index_add_(0, own_rows, rows * by if weighted else rows)
            assert torch.equal(back.cpu(), sums.to(dtype))
