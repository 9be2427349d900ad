"""What the benchmarks on GPUs share: their ranks, and where their results go."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any


def parser(
    about: str | None, name: str, sizes: list[int], seconds: float
) -> argparse.ArgumentParser:
    """Of the options that these benchmarks share; `about` is the program's text, `name` its own."""
    made = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    made.add_argument("--out", type=Path, default=Path(f"build-gpu-{name}"))
    made.add_argument("--sizes", type=int, nargs="+", default=sizes)
    made.add_argument("--seconds", type=float, default=seconds)
    made.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return made


def run_ranks(
    script: str, ranks: int, settings: dict[str, str], seconds: float
) -> list[dict[str, Any]]:
    """Runs `script --worker` as so many ranks; the rows that rank 0 has printed by then."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        # NVLink multicast can put the GPUs of a shared host out of service.
        "NCCL_NVLS_ENABLE": "0",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
        "PYTHONUNBUFFERED": "1",
        **settings,
    }
    processes = [
        subprocess.Popen(
            [sys.executable, script, "--worker"],
            text=True,
            env=environment | {"RANK": str(rank)},
            stdout=subprocess.PIPE if rank == 0 else None,
        )
        for rank in range(ranks)
    ]
    try:
        output, _ = processes[0].communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        for process in processes:
            process.kill()
        output, _ = processes[0].communicate()
        print(f"not finished within {seconds:.0f} s", file=sys.stderr)
    for process in processes:
        process.kill()
        process.wait()
    return [json.loads(line[4:]) for line in output.splitlines() if line.startswith("ROW {")]


def say(rank: int, row: dict[str, Any]) -> None:
    """A row of the results, of rank 0."""
    if rank == 0:
        print("ROW " + json.dumps(row), flush=True)


def say_machine(rank: int) -> None:
    """The row that comes first: where and with what the others were measured."""
    import torch

    module = Path("/proc/driver/nvidia/version")
    driver = re.search(r"\d{3}\.[\d.]+\d", module.read_text()) if module.exists() else None
    machine = {
        "gpu": torch.cuda.get_device_name(),
        "gpus": torch.cuda.device_count(),
        "driver": driver[0] if driver else "unknown",
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "date": datetime.now(timezone.utc).date().isoformat(),
    }
    say(rank, {"machine": machine})


def slowest(value: float, device: Any) -> float:
    """The largest of all ranks, by NCCL."""
    import torch
    import torch.distributed as dist

    values = torch.tensor([value], device=device)
    dist.all_reduce(values, op=dist.ReduceOp.MAX)
    return float(values)


def replay_us(call: Callable[[], Any], nbytes: int) -> float:
    """Microseconds of a call that moves so many bytes, by replays of a CUDA graph of many."""
    import torch

    nodes = 50 if nbytes <= 1 << 20 else 10 if nbytes <= 1 << 26 else 2
    replays = 6 if nbytes <= 1 << 26 else 4
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(nodes):
            call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(stream):
        graph.replay()
        begin.record()
        for _ in range(replays):
            graph.replay()
        end.record()
    stream.synchronize()
    return begin.elapsed_time(end) * 1e3 / (nodes * replays)


def write(out: Path, name: str, rows: list[dict[str, Any]], lines: list[str]) -> None:
    """`name`.jsonl and .md, where the machine is named if the rows do; prints the latter."""
    out.mkdir(parents=True, exist_ok=True)
    machines = [row["machine"] for row in rows if "machine" in row]
    named = [", ".join(f"{key} {value}" for key, value in one.items()) for one in machines]
    lines = [line for name in named for line in (name, "")] + lines
    (out / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (out / f"{name}.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def can_plot() -> bool:
    """Whether there is matplotlib; says so if not."""
    if importlib.util.find_spec("matplotlib") is None:
        print("no plot: there is no matplotlib", file=sys.stderr)
        return False
    return True


@contextmanager
def figure(file: Path, plots: int) -> Iterator[list[Any]]:
    """Axes for so many plots beside each other, which become a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    fig, axes = pyplot.subplots(1, plots, figsize=(5 * plots, 4), squeeze=False)
    yield list(axes[0])
    fig.tight_layout()
    fig.savefig(file)
