"""Ranks of one host in which the backends of torch.distributed take turns."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from rich.console import Console

from side_by_side import libraries

BACKENDS = ("ctran", "gloo")


def _run_rank(
    rank: int,
    function: Callable[[argparse.Namespace], Any],
    options: argparse.Namespace,
    store: str,
    cpus: str,
    output: str,
) -> None:
    import torchcomms  # noqa: F401  # makes the backend known

    torch.set_num_threads(1)
    if cpus != "none":
        os.sched_setaffinity(0, list(map(int, cpus.split(",")))[rank :: options.nproc])
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(store, options.nproc),
        rank=rank,
        world_size=options.nproc,
        timeout=datetime.timedelta(seconds=300),
    )
    record = function(options)
    if rank == 0:
        Path(output).write_text(json.dumps(record))
    dist.destroy_process_group()


def run(function: Callable[[argparse.Namespace], Any], options: argparse.Namespace) -> Any:
    """What `function(options)`, of a module, returns on rank 0 of `options.nproc`, as JSON has it.

    The default group is one of Gloo. A rank has a thread to compute and two CPUs, where there are
    so many.
    """
    ranks = options.nproc
    cpus = libraries.placement("auto", 2 * ranks)
    if cpus == "none":
        cpus = libraries.placement("auto", ranks)
    with tempfile.TemporaryDirectory() as scratch:
        output = f"{scratch}/record"
        mp.spawn(_run_rank, (function, options, f"{scratch}/store", cpus, output), nprocs=ranks)
        return json.loads(Path(output).read_text())


def write(console: Console, options: argparse.Namespace, seconds: Any) -> None:
    """The samples, and what they were taken with, to `options.output`."""
    options.output.parent.mkdir(parents=True, exist_ok=True)
    settings = {key: value for key, value in vars(options).items() if key != "output"}
    text = {"settings": settings, "seconds": seconds, "load_average": os.getloadavg()}
    options.output.write_text(json.dumps(text, indent=1) + "\n")
    console.print("written:", options.output)
