#!/usr/bin/env python3
"""Writes the tables of docs/backends/gloo.md from what Gloo and the backend really accept.

Each pair of dtype and reduction is tried on two ranks (threads of this process), on PyTorch's Gloo
alone and through torchcomms; so is the movement of each dtype. With --check nothing is written, and
a difference is exit status 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore, ProcessGroupGloo

import torchcomms

PAGE = Path(__file__).parents[1] / "docs" / "backends" / "gloo.md"
BEGIN = "<!-- written by tools/docs_gloo.py: from here -->"
END = "<!-- to here -->"
RANKS = range(2)
TIMEOUT = timedelta(seconds=30)
DTYPES = (
    torch.bool,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.uint16,
    torch.int32,
    torch.uint32,
    torch.int64,
    torch.uint64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex32,
    torch.complex64,
    torch.complex128,
)
OPS = ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG", "PREMUL_SUM")


class Probe:
    """Two ranks, with and without torchcomms."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(len(RANKS))
        store = HashStore()
        self.groups = self.on_both(
            lambda rank: ProcessGroupGloo(PrefixStore("a", store), rank, len(RANKS), TIMEOUT)
        )

        def new_comm(rank: int) -> torchcomms.TorchComm:
            options = torchcomms.CommOptions()
            options.rank, options.size, options.store = rank, len(RANKS), store
            return torchcomms.new_comm("gloo", torch.device("cpu"), "docs", options=options)

        self.comms = self.on_both(new_comm)

    def on_both(self, call: Callable[[int], Any]) -> list[Any]:
        return list(self.threads.map(call, RANKS))

    def accepts(self, call: Callable[[int], Any]) -> bool:
        """Whether `call` returns. It refuses at once, on both ranks, or not at all."""
        try:
            self.on_both(call)
        except RuntimeError:
            return False
        return True

    def reduction(self, dtype: torch.dtype, op: str) -> str:
        def alone(rank: int) -> None:
            options = dist.AllreduceOptions()
            options.timeout = TIMEOUT
            options.reduceOp = getattr(dist.ReduceOp, op)
            reduced = torch.ones(4).to(dtype)
            self.groups[rank].allreduce([reduced], options).wait()
            results[rank, "alone"] = reduced.view(torch.uint8)

        def ours(rank: int) -> None:
            made = torchcomms.ReduceOp.PREMUL_SUM(1.0)
            reduction = made if op == "PREMUL_SUM" else getattr(torchcomms.ReduceOp, op)
            reduced = torch.ones(4).to(dtype)
            self.comms[rank].all_reduce(reduced, reduction, False)
            results[rank, "ours"] = reduced.view(torch.uint8)

        results: dict[tuple[int, str], torch.Tensor] = {}
        if not self.accepts(ours):
            return "error"
        # c10d's PREMUL_SUM is NCCL's alone.
        if op == "PREMUL_SUM" or not self.accepts(alone):
            return "emulated"
        # Gloo adds up bools to bytes that are none.
        same = all(torch.equal(results[rank, "alone"], results[rank, "ours"]) for rank in RANKS)
        return "Gloo" if same else "emulated"

    def movement(self, dtype: torch.dtype) -> str:
        def alone(rank: int) -> None:
            options = dist.BroadcastOptions()
            options.rootRank = 0
            self.groups[rank].broadcast([_bytes(rank).view(dtype)], options).wait()

        def ours(rank: int) -> None:
            moved = _bytes(rank).view(dtype)
            self.comms[rank].broadcast(moved, 0, False)
            assert torch.equal(moved.view(torch.uint8), _bytes(0))

        assert self.accepts(ours)
        return "Gloo, as bytes" if self.accepts(alone) else "as bytes"

    def close(self) -> None:
        self.on_both(lambda rank: self.comms[rank].finalize())
        self.threads.shutdown()


def _bytes(rank: int) -> torch.Tensor:
    return torch.full((64,), 1 - rank, dtype=torch.uint8)


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def tables() -> list[str]:
    probe = Probe()
    lines = ["", row("dtype", "moved", *OPS), row(*["---"] * (len(OPS) + 2))]
    for dtype in DTYPES:
        cells = [probe.reduction(dtype, op) for op in OPS]
        lines.append(row(str(dtype).removeprefix("torch."), probe.movement(dtype), *cells))
    probe.close()
    return [*lines, ""]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    before, _, rest = PAGE.read_text().partition(BEGIN)
    inside, end, after = rest.partition(END)
    assert end, f"{PAGE} lacks the lines between which the tables stand"
    made = "\n".join(tables())
    if check:
        if made == inside:
            return 0
        print(f"{PAGE} differs from what this torch and this build do:\n{made}")
        return 1
    PAGE.write_text(before + BEGIN + made + END + after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
