#!/usr/bin/env python3
"""Times all-reduces that go on while the program computes in Python, on ctran beside Gloo.

Every rank posts a number of all-reduces through torch.distributed, computes in Python for as long
as they take alone, and waits for them. Python keeps the interpreter's lock, but for a moment every
5 ms if somebody asks; so whoever asks for it at the end of each operation falls behind. The
backends take turns, with new tensors each time. The table says, of the slowest rank,

  alone   the operations, if the program does nothing but wait for them
  behind  computing and waiting; computing alone would take as long as `alone`
  hidden  how much of the operations that hides: 1 - (behind - computing) / alone

A rank has two CPUs, where there are so many: one to compute and one to communicate.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from side_by_side import c10d_ranks
from side_by_side.c10d_ranks import BACKENDS


def compute(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(50))


def seconds(group: dist.ProcessGroup, options: argparse.Namespace, size: int, busy: float) -> float:
    """Of the slowest rank."""
    tensors = [torch.ones(size // 4) for _ in range(options.operations)]
    dist.barrier()
    begin = time.perf_counter()
    works = [dist.all_reduce(one, group=group, async_op=True) for one in tensors]
    compute(busy)
    for work in works:
        work.wait()
    elapsed = torch.tensor(time.perf_counter() - begin)
    if any(float(one[-1]) != options.nproc for one in tensors):
        raise AssertionError("a sum is wrong")
    dist.all_reduce(elapsed, dist.ReduceOp.MAX)
    return float(elapsed)


def run_rank(options: argparse.Namespace) -> dict[str, dict[int, dict[str, list[float]]]]:
    groups = {backend: dist.new_group(backend=backend) for backend in BACKENDS}
    samples: dict[str, dict[int, dict[str, list[float]]]] = {
        backend: {size: {"alone": [], "behind": []} for size in options.sizes}
        for backend in BACKENDS
    }
    for turn in range(options.turns + 1):  # the first is for warming up
        for size in options.sizes:
            for backend in BACKENDS if turn % 2 else BACKENDS[::-1]:
                alone = seconds(groups[backend], options, size, 0)
                behind = seconds(groups[backend], options, size, alone)
                if turn > 0:
                    samples[backend][size]["alone"].append(alone)
                    samples[backend][size]["behind"].append(behind)
    return samples


def report(
    options: argparse.Namespace, samples: dict[str, dict[str, dict[str, list[float]]]]
) -> Table:
    table = Table(
        title=f"{options.nproc} ranks, {options.operations} all-reduces, ms (median)",
        title_justify="left",
    )
    for title in ("bytes", "backend", "alone", "behind", "hidden"):
        table.add_column(title, justify="right")
    for size in options.sizes:
        for backend, of_backend in samples.items():
            alone, behind = of_backend[str(size)]["alone"], of_backend[str(size)]["behind"]
            hidden = statistics.median(2 - b / a for a, b in zip(alone, behind, strict=True))
            times = [f"{statistics.median(times) * 1e3:.2f}" for times in (alone, behind)]
            table.add_row(f"{size:,}", backend, *times, f"{hidden:.0%}")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--nproc", type=int, default=2, help="ranks (default 2)")
    parser.add_argument("--operations", type=int, default=100, help="posted (default 100)")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[4096, 1 << 20], help="bytes (default 4096 1048576)"
    )
    parser.add_argument("--turns", type=int, default=7, help="(default 7)")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("build/bench/busy_python.json"),
        help="(default %(default)s)",
    )
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    with console.status("timing"):
        samples = c10d_ranks.run(run_rank, options)
    console.print(report(options, samples))
    c10d_ranks.write(console, options, samples)
    return 0


if __name__ == "__main__":
    sys.exit(main())
