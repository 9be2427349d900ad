"""A communicator of some processes, and all_reduce on it: does it work at all?"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchcomms import _variables
from torchcomms.cli.doctor.finding import Check, Host, Outcome, broken, good, slow
from torchcomms.cli.doctor.rendezvous import Progress

if TYPE_CHECKING:
    from torchcomms import TorchComm

SECONDS = 60.0
_MOST = 8
_REPEATED = 20
_SMALL, _LARGE = 8, 1 << 20  # bytes
_LATE_US = 5000.0
# Ranks find packages where this process does, whatever the current folder has.
_WORKER = """
import json, sys
sys.path[:] = json.loads(sys.argv.pop(1))
from torchcomms.cli.doctor.worker import run
run()
"""
_FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHCOMM_RANK", "TORCHCOMM_SIZE")

ABOUT = "all_reduce by the engine"


def exercise(comm: TorchComm) -> tuple[float, float]:
    """Median microseconds of an all_reduce of 8 bytes and of 1 MiB.

    Raises:
        ArithmeticError: a sum is wrong.
    """
    import torch

    from torchcomms import ReduceOp

    times = []
    rank, size = comm.get_rank(), comm.get_size()
    for nbytes in (_SMALL, _LARGE):
        taken = []
        for turn in range(_REPEATED):
            tensor = torch.full((nbytes // 4,), rank + turn + 1, dtype=torch.int32)
            start = time.perf_counter_ns()
            comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
            taken.append((time.perf_counter_ns() - start) / 1000)
            if not bool((tensor == size * (size + 1) // 2 + size * turn).all()):
                raise ArithmeticError(f"all_reduce of {nbytes} bytes gives a wrong sum")
        times.append(statistics.median(taken))
    return times[0], times[1]


def judge(ranks: int, small: float, large: float) -> Outcome:
    said = f"all_reduce of {ranks} ranks: {small:.3g} µs for 8 bytes, {large:.4g} µs for 1 MiB"
    if small > _LATE_US:
        return slow(
            f"{said}: ranks wait for cores or for each other",
            "top shows what else runs here; the checks of cores and network say more",
        )
    return good(said)


class _Process:
    """A rank, and the lines that it has written."""

    def __init__(self, command: Sequence[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def stage(self) -> str:
        reached = [line for line in self.lines if line.startswith("stage: ")]
        return reached[-1].removeprefix("stage: ") if reached else "start"

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(5)

    def failure(self) -> str:
        """How it ended, with its last words; empty if well."""
        code = self.process.poll()
        if code == 0:
            return ""
        how = f"ended by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        last = next((line for line in reversed(self.lines) if not line.startswith("stage: ")), "")
        return f"{how} during {self.stage()}" + (f": {last}" if last else "")


def on_this_host(host: Host, progress: Progress, seconds: float = SECONDS) -> Outcome:
    """Starts ranks of its own, and ends them: after `seconds` at the latest."""
    from torch.distributed import TCPStore

    size = max(2, min(host.ranks, _MOST))
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    env = {name: value for name, value in host.environ.items() if name not in _FOREIGN}
    env["OMP_NUM_THREADS"] = "1"
    processes = []
    for rank in range(size):
        place = {"TORCHCOMM_RANK": str(rank), "TORCHCOMM_SIZE": str(size)}
        command = [
            sys.executable,
            "-c",
            _WORKER,
            json.dumps(sys.path),
            str(store.port),
            str(seconds),
        ]
        processes.append(_Process(command, {**env, **place}))
    deadline = time.monotonic() + seconds
    shown = ""
    try:
        while time.monotonic() < deadline and any(p.process.poll() is None for p in processes):
            if any(p.process.poll() not in (None, 0) for p in processes):
                break
            stages = ", ".join(dict.fromkeys(p.stage() for p in processes))
            if stages != shown:
                progress(f"self-test of {size} processes: {stages}")
                shown = stages
            time.sleep(0.02)
        ended = [p.process.poll() for p in processes]
    finally:
        for one in processes:
            one.end()
    return _judge(processes, ended, seconds)


def _judge(processes: list[_Process], ended: list[int | None], seconds: float) -> Outcome:
    failed = [
        f"rank {rank}: {processes[rank].failure()}"
        for rank, code in enumerate(ended)
        if code not in (None, 0)
    ]
    if failed:
        return broken("; ".join(failed), "TORCHCOMM_LOG=debug torchcomms doctor says more")
    late = [f"rank {r} in {processes[r].stage()}" for r, code in enumerate(ended) if code is None]
    if late:
        return broken(
            f"not ready after {seconds:.0f} s: {', '.join(late)}",
            "TORCHCOMM_LOG=debug torchcomms doctor says more; top shows what else runs here",
        )
    times = next(line for line in processes[0].lines if line.startswith("times: ")).split()[1:]
    return judge(len(processes), float(times[0]), float(times[1]))


def check(progress: Progress, seconds: float) -> Check:
    """Of this host alone."""
    return Check(
        "self_test", "self-test", ABOUT, lambda host: on_this_host(host, progress, seconds)
    )


def environment_is_of_a_launcher() -> bool:
    """Whether this process is one of several that were started together."""
    from torchcomms import _rendezvous

    place = _rendezvous._find_place(_variables.environment())
    return place is not None and place.size > 1
