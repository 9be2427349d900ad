"""Runs the cases of backend nccl, its matrix and its timings on this host's GPUs, without pytest.

Prints a line for each, and writes them to nccl.jsonl in the output folder; exits with 1 if one
failed. `--only TEXT` takes those whose name has the text. See run.sh.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nccl_ranks.plugins
import nccl_ranks.reconfigure
import nccl_ranks.trouble
import nccl_ranks.use
import nccl_ranks.windows  # noqa: F401  (all register their cases)
import torch
import torch.distributed as dist
from harness import Rank
from harness.devices import has_gpu
from harness.matrix import Case, check, pairwise, run_case, run_cases
from harness.ranks import Pool
from nccl_ranks import CASES

from torchcomms import ReduceOp

BATCH = 32
COUNT = 4096  # bfloat16: 8 KB
CALLS = 2000
CAPTURED = 20


class Report:
    def __init__(self, file: Path) -> None:
        self._file = file.open("w")
        self.failures = 0

    def add(self, name: str, seconds: float, error: str | None = None, **values: Any) -> None:
        row = {"name": name, "seconds": round(seconds, 2), "error": error, **values}
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        numbers = " ".join(f"{key}={value}" for key, value in values.items())
        print(f"{'FAILED' if error else 'ok':6} {seconds:6.1f} s  {name} {numbers}", flush=True)
        if error:
            self.failures += 1
            print(error[-3000:], flush=True)

    def attempt(self, name: str, body: Callable[[], dict[str, Any] | None]) -> None:
        start = time.monotonic()
        try:
            values = body() or {}
        except Exception:
            self.add(name, time.monotonic() - start, traceback.format_exc())
        else:
            self.add(name, time.monotonic() - start, **values)


def run_matrix(report: Report, pool: Pool, world: int) -> None:
    cases = [case for case in pairwise("nccl") if case.world == world]
    for at in range(0, len(cases), BATCH):
        some = cases[at : at + BATCH]

        def body(some: list[Case] = some) -> None:
            of_ranks = pool.ranks(world).run(run_cases, some)
            problems = []
            for case, *reports in zip(some, *of_ranks, strict=True):
                try:
                    check(case, reports)
                except AssertionError as error:
                    problems.append(str(error))
            if problems:
                raise AssertionError("\n".join(problems))

        before = report.failures
        report.attempt(f"matrix of {world}, cases {at} to {at + len(some) - 1}", body)
        if report.failures > before:  # which one breaks the ranks?
            for case in some:
                one = lambda case=case: check(case, pool.ranks(world).run(run_case, case))  # noqa: E731
                report.attempt(f"  {case}", one)


def _timed(call: Callable[[], Any], rank: Rank) -> tuple[float, float]:
    """Microseconds of CPU time per call, and of a call with its end."""
    for _ in range(50):
        call()
    rank.synchronize("nccl")
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    issued = time.perf_counter() - start
    rank.synchronize("nccl")
    start = time.perf_counter()
    for _ in range(CALLS // 4):
        call()
        rank.gpu().synchronize_stream()
    ended = time.perf_counter() - start
    return round(issued / CALLS * 1e6, 2), round(ended / (CALLS // 4) * 1e6, 2)


def time_calls(rank: Rank, way: str) -> dict[str, Any]:
    """All-reduce of 8 KB."""
    tensor = torch.ones(COUNT, dtype=torch.bfloat16, device=rank.device("nccl"))
    if way == "c10d":
        store = rank.store("c10d")
        dist.init_process_group("nccl", store=store, rank=rank.rank, world_size=rank.size)
        sync = _timed(lambda: dist.all_reduce(tensor), rank)
        both = _timed(lambda: dist.all_reduce(tensor, async_op=True).wait(), rank)
        dist.destroy_process_group()
    else:
        start = time.perf_counter()
        comm = rank.new_comm("nccl", f"timed-{way}", hints={"blocking": way})
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        rank.synchronize("nccl")
        created = time.perf_counter() - start
        sync = _timed(lambda: comm.all_reduce(tensor, ReduceOp.SUM, False), rank)
        both = _timed(lambda: comm.all_reduce(tensor, ReduceOp.SUM, True).wait(), rank)
        comm.finalize()
        return {"created_ms": round(created * 1e3), "sync_us": sync, "async_us": both}
    return {"sync_us": sync, "async_us": both}


def time_replays(rank: Rank, watched: str) -> dict[str, Any]:
    """All-reduces of 8 KB in a graph; `watched`: whether its replays can time out."""
    tensor = torch.ones(COUNT, dtype=torch.bfloat16, device=rank.device("nccl"))
    hints = {"enable_cuda_graph_support": watched}
    comm = rank.new_comm("nccl", f"replayed-{watched}", hints=hints)
    comm.all_reduce(tensor, ReduceOp.MAX, async_op=False)
    rank.synchronize("nccl")

    def step() -> None:
        for _ in range(CAPTURED):
            comm.all_reduce(tensor, ReduceOp.MAX, async_op=False)

    replay = rank.gpu().capture(step)
    for _ in range(20):
        replay()
    rank.synchronize("nccl")
    start = time.perf_counter()
    for _ in range(CALLS // CAPTURED):
        replay()
    rank.synchronize("nccl")
    seconds = time.perf_counter() - start
    del replay
    comm.finalize()
    return {"us_per_operation": round(seconds / (CALLS // CAPTURED) / CAPTURED * 1e6, 2)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--only", default="")
    parser.add_argument("--without-matrix", action="store_true")
    parser.add_argument("--stand-ins", action="store_true", help="where there is no GPU")
    arguments = parser.parse_args()
    if not has_gpu() and not arguments.stand_ins:
        print("there is no GPU here", file=sys.stderr)
        return 2
    gpus = torch.cuda.device_count() if has_gpu() else 4
    name = torch.cuda.get_device_name(0) if has_gpu() else "stand-in"
    print(f"{gpus} x {name}, torch {torch.__version__}, python {sys.version.split()[0]}")
    report = Report(arguments.out / "nccl.jsonl")
    shared = Pool()
    for case in CASES:
        if case.world > gpus or arguments.only not in case.name:
            continue
        pool = Pool() if case.breaks else shared
        report.attempt(case.name, lambda case=case, pool=pool: case.run(pool.ranks))
        if case.breaks:
            pool.end()
    for way in ("0", "1", "c10d"):
        if (
            gpus < 2
            or arguments.only not in f"timing of {way}"
            or (way == "c10d" and not has_gpu())
        ):
            continue
        ranks = shared.ranks(2)
        title = {"0": "non-blocking", "1": "blocking"}.get(way, way)
        report.attempt(f"timing of {title}", lambda w=way, r=ranks: r.run(time_calls, w)[0])
    for watched in ("false", "true"):
        title = f"timing of replays, watched: {watched}"
        if gpus >= 2 and arguments.only in title:
            report.attempt(title, lambda w=watched: shared.ranks(2).run(time_replays, w)[0])
    for world in (1, 2, 4):
        if world <= gpus and not arguments.without_matrix and arguments.only in "matrix":
            run_matrix(report, shared, world)
    shared.end()
    print(f"{report.failures} failures")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
