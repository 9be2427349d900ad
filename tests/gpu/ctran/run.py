"""Runs the cases of backend ctran on this host's GPUs, and its matrix, without pytest.

Prints a line for each, and writes them to ctran.jsonl in the output folder; exits with 1 if one
failed, or was skipped because --seconds had passed. See run.sh.
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

import gpu_ranks.algorithms
import gpu_ranks.copies
import gpu_ranks.device_windows
import gpu_ranks.groups
import gpu_ranks.hosts
import gpu_ranks.messages
import gpu_ranks.mscclpp
import gpu_ranks.ncclx
import gpu_ranks.persistent
import gpu_ranks.plans
import gpu_ranks.quantized
import gpu_ranks.reconfigure
import gpu_ranks.rows
import gpu_ranks.stress
import gpu_ranks.symmetric
import gpu_ranks.through_host
import gpu_ranks.triton_windows
import gpu_ranks.trouble
import gpu_ranks.use
import gpu_ranks.windows
import torch
from gpu_ranks import BACKEND, CASES
from harness.devices import has_gpu, most_ranks
from harness.matrix import Case, check, pairwise, run_cases
from harness.ranks import Pool

BATCH = 32


class Report:
    def __init__(self, file: Path) -> None:
        self._file = file.open("w")
        self.failures = 0
        self.skipped = 0

    def skip(self, name: str) -> None:
        """For want of time."""
        self.skipped += 1
        self._file.write(json.dumps({"name": name, "skipped": True}) + "\n")
        print(f"skipped           {name}", flush=True)

    def attempt(self, name: str, body: Callable[[], Any]) -> None:
        start = time.monotonic()
        error = None
        try:
            body()
        except Exception:
            error = traceback.format_exc()
            self.failures += 1
        seconds = time.monotonic() - start
        self._file.write(
            json.dumps({"name": name, "seconds": round(seconds, 2), "error": error}) + "\n"
        )
        self._file.flush()
        print(f"{'FAILED' if error else 'ok':6} {seconds:6.1f} s  {name}", flush=True)
        if error:
            print(error[-1500:], flush=True)


def run_matrix(report: Report, pool: Pool, world: int, batch: int, until: float) -> None:
    cases = [case for case in pairwise(BACKEND) if case.world == world]
    for at in range(0, len(cases), batch):
        some = cases[at : at + batch]
        name = f"matrix of {world}, cases {at} to {at + len(some) - 1}"
        if time.monotonic() > until:
            report.skip(name)
            continue

        def body(some: list[Case] = some) -> None:
            of_ranks = pool.ranks(world).run(run_cases, some)
            problems = []
            for case, *reports in zip(some, *of_ranks, strict=True):
                try:
                    check(case, reports)
                except AssertionError as error:
                    problems.append(str(error)[:300])
            if problems:
                raise AssertionError(f"{len(problems)} of them\n" + "\n".join(problems))

        report.attempt(name, body)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the names of cases")
    parser.add_argument("--worlds", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--batch", type=int, default=BATCH, help="cases of the matrix at a time")
    parser.add_argument(
        "--stress",
        type=int,
        metavar="OPERATIONS",
        help="only the random programs, of so many operations each",
    )
    parser.add_argument("--stand-ins", action="store_true", help="where there is no GPU")
    arguments = parser.parse_args()
    if arguments.stress:
        arguments.only = ["stress"]
        gpu_ranks.stress.operations = arguments.stress
    if not has_gpu() and not arguments.stand_ins:
        print("there is no GPU here", file=sys.stderr)
        return 2
    until = time.monotonic() + arguments.seconds
    if has_gpu():
        name = torch.cuda.get_device_name(0)
        print(f"{torch.cuda.device_count()} x {name}, torch {torch.__version__}")
    report = Report(arguments.out / "ctran.jsonl")
    shared = Pool()
    for case in CASES:
        most = most_ranks(case.apart) if has_gpu() else max(arguments.worlds)
        if case.world > most or (case.real and not has_gpu()):
            continue
        if not any(part in case.name for part in arguments.only):
            continue
        if time.monotonic() > until:
            report.skip(case.name)
            continue
        pool = Pool() if case.breaks else shared
        report.attempt(case.name, lambda case=case, pool=pool: case.run(pool.ranks))
        if case.breaks:
            pool.end()
    shared.end()
    for world in arguments.worlds:
        if any(part in "matrix" for part in arguments.only):
            pool = Pool()
            run_matrix(report, pool, world, arguments.batch, until)
            pool.end()
    print(f"{report.failures} failures, {report.skipped} skipped")
    return 1 if report.failures or report.skipped else 0


if __name__ == "__main__":
    sys.exit(main())
