#!/usr/bin/env python3
"""Times a training step under DistributedDataParallel on ctran beside PyTorch's Gloo, in one run.

A small transformer, trained by ranks of this host, one thread each. Every rank has the model once
for each backend, with the same weights, and all take turns, step by step: one on each backend, one
whose gradients stay where they are (no_sync). The gradients alone are reduced in as large buckets
too. So the table says, for each backend, of the slowest rank,

  step          a step, with the reduction of the gradients behind the backward pass
  compute       a step after which the ranks only wait for each other
  communication the reduction of as many gradients alone
  hidden        how much of that the backward pass hides: 1 - (step - compute) / communication

A rank has two CPUs, where there are so many: one to compute and one to communicate. With one,
little can be hidden, and nothing with less: whoever waits is in another's way. Gradients lie in
DDP's buckets (gradient_as_bucket_view); otherwise it would copy them there and back, alike for all.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from side_by_side import c10d_ranks
from side_by_side.c10d_ranks import BACKENDS
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

VOCABULARY = 1000


class Transformer(nn.Module):
    """A language model that fits a laptop."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.embedding(tokens)))


class Trainer:
    """One model on one backend."""

    def __init__(self, backend: str, options: argparse.Namespace) -> None:
        self.group = dist.new_group(backend=backend)
        torch.manual_seed(0)
        model = Transformer(options.width, options.layers)
        self.model = DistributedDataParallel(
            model,
            process_group=self.group,
            bucket_cap_mb=options.bucket_mb,
            gradient_as_bucket_view=True,
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        shape = (options.batch, options.length)
        self.tokens = torch.randint(VOCABULARY, shape)
        elements = sum(p.numel() for p in model.parameters())
        per_bucket = options.bucket_mb * (1 << 20) // 4
        self.buckets = [
            torch.zeros(min(per_bucket, elements - begin))
            for begin in range(0, elements, per_bucket)
        ]

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=False)
        logits = self.model(self.tokens)
        nn.functional.cross_entropy(logits.flatten(0, 1), self.tokens.flatten()).backward()
        self.optimizer.step()

    def compute(self) -> None:
        with self.model.no_sync():
            self.step()
        dist.barrier(self.group)

    def communicate(self) -> None:
        works = [dist.all_reduce(b, group=self.group, async_op=True) for b in self.buckets]
        for work in works:
            work.wait()

    def digest(self) -> float:
        return sum(float(p.detach().double().sum()) for p in self.model.parameters())


def run_rank(options: argparse.Namespace) -> dict[str, Any]:
    trainers = {backend: Trainer(backend, options) for backend in BACKENDS}
    parts = {"step": Trainer.step, "compute": Trainer.compute, "communication": Trainer.communicate}
    samples: dict[str, dict[str, list[float]]] = {
        backend: {part: [] for part in parts} for backend in BACKENDS
    }
    for turn in range(options.steps + 2):  # the first two are for warming up
        order = BACKENDS if turn % 2 else BACKENDS[::-1]
        for part, function in parts.items():
            for backend in order:
                dist.barrier()
                begin = time.perf_counter()
                function(trainers[backend])
                elapsed = torch.tensor(time.perf_counter() - begin)
                dist.all_reduce(elapsed, dist.ReduceOp.MAX)
                if turn > 1:
                    samples[backend][part].append(float(elapsed))
    digests = [trainer.digest() for trainer in trainers.values()]
    if max(digests) - min(digests) > 1e-2 * abs(digests[0]):
        raise AssertionError(f"the backends trained different models: {digests}")
    parameters = sum(p.numel() for p in trainers["ctran"].model.parameters())
    return {"parameters": parameters, "samples": samples}


def report(ranks: int, record: dict[str, dict[str, dict[str, list[float]]]]) -> Table:
    table = Table(
        title=f"{ranks} ranks, {record['parameters']:,} parameters, ms (median)",
        title_justify="left",
    )
    for title in ("backend", "step", "compute", "communication", "hidden"):
        table.add_column(title, justify="right")
    for backend, parts in record["samples"].items():
        step, compute, alone = (
            statistics.median(parts[part]) * 1e3 for part in ("step", "compute", "communication")
        )
        hidden = 1 - (step - compute) / alone
        table.add_row(backend, f"{step:.1f}", f"{compute:.1f}", f"{alone:.1f}", f"{hidden:.0%}")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--nproc", help="ranks, comma-separated (default 2,4)", default="2,4")
    parser.add_argument("--steps", type=int, default=21, help="of each (default 21)")
    parser.add_argument("--width", type=int, default=256, help="of the model (default 256)")
    parser.add_argument("--layers", type=int, default=4, help="of the model (default 4)")
    parser.add_argument("--batch", type=int, default=4, help="sequences per rank (default 4)")
    parser.add_argument("--length", type=int, default=64, help="tokens of each (default 64)")
    parser.add_argument(
        "--bucket-mb",
        type=int,
        default=2,
        help="of DDP; its own default, 25, is more than this model has (default 2)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("build/bench/train_step.json"),
        help="(default %(default)s)",
    )
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    records = []
    for ranks in map(int, options.nproc.split(",")):
        one = argparse.Namespace(**{**vars(options), "nproc": ranks})
        with console.status(f"training on {ranks} ranks"):
            record = c10d_ranks.run(run_rank, one)
        console.print(report(ranks, record))
        records.append({"ranks": ranks, **record})
    c10d_ranks.write(console, options, records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
