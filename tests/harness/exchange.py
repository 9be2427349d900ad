"""All-to-all exchanges with a size of its own for every pair of ranks."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from harness.data import concat, same_bits, values
from harness.matrix import DTYPES
from harness.worker import Rank


@dataclass(frozen=True)
class Exchange:
    """Rank i sends rows[i][j] rows of `width` elements to rank j; in place, as many as it gets."""

    dtype: str
    width: int
    rows: list[list[int]]
    in_place: bool


def run_exchange(rank: Rank, exchange: Exchange, backend: str) -> bool:
    """Whether everything arrived, and nothing else was written."""
    dtype, width, rows = DTYPES[exchange.dtype], exchange.width, exchange.rows
    sends = rows[rank.rank]
    receives = [rows[r][rank.rank] for r in range(rank.size)]
    unused = values(0, 2 * width, dtype)  # rows that are nobody's
    blocks = [values(rank.rank, n * width, dtype, to) for to, n in enumerate(sends)]
    source = concat([*blocks, unused]).view(-1, width)
    expected = [values(r, n * width, dtype, rank.rank) for r, n in enumerate(receives)]
    if exchange.in_place:
        output = source
    else:
        output = concat([*map(torch.zeros_like, expected), unused]).view(-1, width)
    rank.comm(backend).all_to_all_v_single(output, source, receives, sends, async_op=False)
    return same_bits(output.view(-1), concat([*expected, unused]))
