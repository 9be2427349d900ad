"""GPUs of several hosts, on the GPUs of this one: ranks count as on hosts of their own.

Runs the cases of tests/gpu_ranks/hosts.py, then measures the algorithms, without pytest. Ranks
share GPUs where there are more ranks than GPUs: one GPU will do. From the root of the checkout,
after tests/gpu/ctran/run.sh has built for the python3 and torch of this host:

    PYTHONPATH=build/gpu/site:tests python3 tests/gpu/hosts/run.py --out build/gpu-hosts

Prints a line for each case and each measurement, and writes them to hosts.jsonl in the output
folder; exits with 1 if a case failed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HARNESS_RANKS_PER_GPU", "8")

import gpu_ranks.hosts
import torch
from gpu_ranks import BACKEND, CASES
from harness import Rank
from harness.devices import has_gpu
from harness.ranks import Pool

from torchcomms import ReduceOp

SIZES = tuple(1 << power for power in (10, 16, 20, 24, 28))
REPEATS, CALLS = 5, 10


def measure(rank: Rank, hosts: tuple[int, ...], algorithm: str) -> list[tuple[str, int, float]]:
    """Microseconds of an operation on float32, eager, the median of some runs of some calls."""
    hints = {"ctran::host": f"host{hosts[rank.rank]}", "ctran::algorithm": algorithm}
    comm = rank.new_comm(BACKEND, f"measured {hosts} {algorithm}", hints=hints)
    device = rank.device(BACKEND)
    found = []
    for size in SIZES:
        whole = torch.ones(size // 4, device=device)
        part = torch.ones(size // 4 // rank.size, device=device)
        other = torch.empty_like(whole)
        calls = {
            "all_reduce": lambda whole=whole: comm.all_reduce(whole, ReduceOp.MAX, async_op=False),
            "reduce_scatter": lambda whole=whole, part=part: comm.reduce_scatter_single(
                part, whole[: part.numel() * rank.size], ReduceOp.MAX, async_op=False
            ),
            "all_gather": lambda whole=whole, part=part: comm.all_gather_single(
                whole[: part.numel() * rank.size], part, async_op=False
            ),
            "broadcast": lambda whole=whole: comm.broadcast(whole, 0, async_op=False),
            "all_to_all": lambda whole=whole, other=other, part=part: comm.all_to_all_single(
                other[: part.numel() * rank.size],
                whole[: part.numel() * rank.size],
                async_op=False,
            ),
        }
        for name, call in calls.items():
            times = []
            for _ in range(REPEATS + 1):
                comm.barrier(async_op=False)
                rank.synchronize(BACKEND)
                begun = time.perf_counter()
                for _ in range(CALLS):
                    call()
                rank.synchronize(BACKEND)
                times.append((time.perf_counter() - begun) / CALLS * 1e6)
            found.append((name, size, sorted(times[1:])[REPEATS // 2]))
    comm.finalize()
    return found


def run_cases(only: list[str]) -> Iterator[dict[str, Any]]:
    for case in CASES:
        if case.run.__module__ != gpu_ranks.hosts.__name__:
            continue
        if not any(part in case.name for part in only):
            continue
        pool, begun, error = Pool(), time.monotonic(), None
        try:
            case.run(pool.ranks)
        except Exception:
            error = traceback.format_exc()
        pool.end()
        seconds = time.monotonic() - begun
        print(f"{'FAILED' if error else 'ok':6} {seconds:6.1f} s  {case.name}", flush=True)
        if error:
            print(error[-3000:], flush=True)
        yield {"name": case.name, "seconds": round(seconds, 2), "error": error}


def run_measurements() -> Iterator[dict[str, Any]]:
    for hosts in ((0, 1), (0, 0, 1, 1)):
        for algorithm in (gpu_ranks.hosts.RAILS, gpu_ranks.hosts.HOST):
            pool = Pool()
            of_ranks = pool.ranks(len(hosts)).run(measure, hosts, algorithm)
            pool.end()
            for rows in zip(*of_ranks, strict=True):
                name, size, _ = rows[0]
                micros = max(row[2] for row in rows)
                print(
                    f"{hosts}  {name:14} {algorithm:12} {size:10} B {micros:10.1f} us", flush=True
                )
                yield {
                    "hosts": hosts,
                    "operation": name,
                    "algorithm": algorithm,
                    "bytes": size,
                    "micros": round(micros, 2),
                }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the names of cases")
    parser.add_argument("--no-measurements", action="store_true")
    parser.add_argument("--stand-ins", action="store_true", help="where there is no GPU")
    arguments = parser.parse_args()
    if not has_gpu() and not arguments.stand_ins:
        print("there is no GPU here", file=sys.stderr)
        return 2
    if has_gpu():
        name = torch.cuda.get_device_name(0)
        print(f"{torch.cuda.device_count()} x {name}, torch {torch.__version__}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    failures = 0
    with (arguments.out / "hosts.jsonl").open("w") as file:
        for row in run_cases(arguments.only):
            failures += row["error"] is not None
            file.write(json.dumps(row) + "\n")
        if not arguments.no_measurements:
            for row in run_measurements():
                file.write(json.dumps(row) + "\n")
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
