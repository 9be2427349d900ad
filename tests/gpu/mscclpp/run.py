"""Runs what `mscclpp` promises on this host's GPUs, without pytest: see run.sh. Two ranks, and
four for measurements, examples and the guide where there are four GPUs.

Prints a line for each check, and writes rows of JSON to mscclpp.jsonl in the output folder: a check
has `error`, which is null if it is right; a measurement has `us`, microseconds of a call in a graph
on the slowest rank. Exits with 1 if a check failed.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

GPUS = torch.cuda.device_count()
RANKS = 4 if GPUS >= 4 else 2
# Ranks share a GPU where there are too few. Before the harness is imported, which reads it.
os.environ.setdefault("HARNESS_RANKS_PER_GPU", "2" if GPUS == 1 else "1")

import gpu_ranks.mscclpp  # noqa: E402
from gpu_ranks import CASES  # noqa: E402
from gpu_ranks.mscclpp_times import measure  # noqa: E402
from harness.devices import most_ranks  # noqa: E402
from harness.ranks import Pool  # noqa: E402

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "torch-integration"


class Report:
    def __init__(self, file: Path) -> None:
        self._file = file.open("w")
        self.failures = 0
        self._host = {
            "gpu": torch.cuda.get_device_name(0),
            "gpus": GPUS,
            "torch": torch.__version__,
        }

    def row(self, **row: Any) -> None:
        self._file.write(json.dumps({**row, **self._host}) + "\n")
        self._file.flush()

    def attempt(self, name: str, body: Callable[[], Any]) -> Any:
        start = time.monotonic()
        error = result = None
        try:
            result = body()
        except Exception:
            error = traceback.format_exc()
            self.failures += 1
        seconds = time.monotonic() - start
        self.row(check=name, seconds=round(seconds, 2), error=error)
        print(f"{'FAILED' if error else 'ok':6} {seconds:6.1f} s  {name}", flush=True)
        if error:
            print(error[-3500:], flush=True)
        return result


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def torchrun(program: Path, *arguments: str) -> str:
    where = {"MSCCLPP_MASTER_ADDR": "127.0.0.1", "MSCCLPP_MASTER_PORT": str(free_port())}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command.append(f"--nproc-per-node={RANKS}")
    ended = subprocess.run(
        [*command, str(program), *arguments],
        env={**os.environ, **where},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if ended.returncode != 0:
        of_ranks = ended.stderr.partition("ChildFailedError")[0]  # torchrun's own words follow
        raise AssertionError(f"{program.name}: {ended.returncode}\n{of_ranks[:3000]}")
    print(ended.stdout, end="", flush=True)
    return ended.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the names of checks")
    arguments = parser.parse_args()
    if GPUS == 0:
        print("there is no GPU here", file=sys.stderr)
        return 2
    print(f"{GPUS} x {torch.cuda.get_device_name(0)}, torch {torch.__version__}")

    def is_wanted(name: str) -> bool:
        return any(part in name for part in arguments.only)

    report = Report(arguments.out / "mscclpp.jsonl")
    shared = Pool()
    for case in CASES:
        mine = case.run.__module__ == gpu_ranks.mscclpp.__name__
        if not mine or case.world > most_ranks() or not is_wanted(case.name):
            continue
        pool = Pool() if case.breaks else shared
        report.attempt(case.name, lambda case=case, pool=pool: case.run(pool.ranks))
        if case.breaks:
            pool.end()
    if is_wanted("measured"):
        rows = report.attempt("measured", lambda: shared.ranks(RANKS).run(measure, GPUS >= 2)[0])
        for row in rows or []:
            report.row(**row)
            print(f"{row['us']:>10} us  {row['bytes']:>9} bytes  {row['name']}", flush=True)
    shared.end()
    for name in ("default_algo", "dsl", "tuning"):
        program = EXAMPLES / f"customized_comm_with_{name}.py"
        if is_wanted(program.name):
            report.attempt(program.name, lambda program=program: torchrun(program))
    guide = Path(os.environ.get("MSCCLPP_GUIDE", ROOT / "shared/seeds/mscclpp-torch-guide.md"))
    if guide.exists() and is_wanted("guide"):
        program = ROOT / "tests" / "mscclpp" / "guide" / "program.py"
        report.attempt("guide", lambda: torchrun(program, str(guide)))
    print(f"{report.failures} failures")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
