#!/usr/bin/env python3
"""Takes the picture of the page of `torchcomms analyze --serve`: a job of 8 ranks on two
simulated hosts, one of which is slow and then does not call any more.

Writes build/pictures/analyze.png; without Chromium, nothing.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PICTURE = Path(__file__).parents[1] / "build" / "pictures" / "analyze.png"
RANKS, ODD, STEPS = 8, 5, 40
READY = "ready"


def rank() -> None:
    """One of the job."""
    import torch

    import torchcomms

    own = int(os.environ["RANK"])
    host = {"ctran::host": f"host{own * 2 // RANKS}"}
    comm = torchcomms.new_comm("ctran", torch.device("cpu"), "train", hints=host)
    gradients, parameters = torch.ones(1 << 18), torch.ones(RANKS << 15)
    for _ in range(STEPS):
        comm.all_reduce(gradients, torchcomms.ReduceOp.SUM, async_op=False)
        if own == ODD:
            time.sleep(0.01)  # it computes longer than the others
        comm.all_gather_single(parameters, parameters[: 1 << 15].clone(), async_op=False)
    print(READY, flush=True)
    if own == ODD:
        sys.stdin.read()
    comm.all_reduce(gradients, torchcomms.ReduceOp.SUM, async_op=False)
    sys.stdin.read()


def start() -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = {"WORLD_SIZE": RANKS, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **{k: str(v) for k, v in job.items()}}
    return [
        subprocess.Popen(
            [sys.executable, __file__],
            env={**environment, "RANK": str(r)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for r in range(RANKS)
    ]


def take(browser: str, pid: int) -> None:
    command = [sys.executable, "-m", "torchcomms", "analyze", str(pid), "--serve"]
    with (
        tempfile.TemporaryDirectory() as profile,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served,
    ):
        assert served.stdout is not None
        try:
            address = served.stdout.readline().strip()
            time.sleep(1.5)  # what takes longer than a second counts as stuck
            options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
            options += [f"--user-data-dir={profile}", "--window-size=1000,980"]
            options += ["--virtual-time-budget=2500", f"--screenshot={PICTURE}"]
            subprocess.run([browser, *options, address], check=True, timeout=120)
        finally:
            served.terminate()


def main() -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        print("no Chromium (Debian: chromium): no picture of analyze --serve")
        return
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    ranks = start()
    try:
        for one in ranks:
            assert one.stdout is not None
            if one.stdout.readline().strip() != READY:
                raise SystemExit("a rank has failed")
        take(browser, ranks[0].pid)
    finally:
        for one in ranks:
            one.kill()
        for one in ranks:
            one.wait()
    print(f"written: {PICTURE}")


if __name__ == "__main__":
    rank() if "RANK" in os.environ else main()
