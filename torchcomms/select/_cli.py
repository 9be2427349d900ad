"""`torchcomms explain` and `torchcomms tune`."""

from __future__ import annotations

import argparse
import os
import sys

from torchcomms import _ranks, select
from torchcomms._errors import CommError


def _bytes(text: str) -> int:
    scale = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper())
    return int(text[:-1]) << scale if scale else int(text)


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    explain = commands.add_parser("explain", help="what would run, and why (docs/selection.md)")
    explain.add_argument("collective", help="such as all_reduce")
    explain.add_argument("bytes", type=_bytes, help="that a rank contributes: 4096, 64K, 1M")
    explain.add_argument("-n", "--ranks", type=int, default=2, help="of a host (default 2)")
    explain.add_argument("--hosts", type=int, default=1, help="with so many each (default 1)")
    explain.add_argument("--dtype", default="float32", help="such as bfloat16 (default float32)")
    tune = commands.add_parser("tune", help="measure what is best on this machine")
    tune.add_argument(
        "-n",
        "--ranks",
        type=int,
        default=2,
        help="of this host (default 2); a launcher's ranks, on its hosts, if one started this",
    )
    tune.add_argument(
        "--backend",
        choices=("ctran", "ncclx"),
        default="ctran",
        help="algorithms of ctran on CPUs (default), or ctran and NCCL on GPUs",
    )
    tune.add_argument("--seconds", type=float, default=30, help="about how long (default 30)")


def explain(arguments: argparse.Namespace) -> int:
    import torch

    dtype = getattr(torch, arguments.dtype, None)
    if not isinstance(dtype, torch.dtype):
        print(f"error: torch has no data type '{arguments.dtype}'", file=sys.stderr)
        return 2
    try:
        print(
            select.explain(
                arguments.collective, arguments.bytes, arguments.ranks, arguments.hosts, dtype
            )
        )
    except (ValueError, CommError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def tune(arguments: argparse.Namespace) -> int:
    """Runs as one process per rank: this one starts them, or is one of a launcher's."""
    if _ranks.is_rank():
        return _tune_as_rank(arguments.seconds, arguments.backend)
    if arguments.ranks < 2 or arguments.seconds <= 0:
        print("error: at least 2 ranks and some time", file=sys.stderr)
        return 2
    command = ["tune", "--backend", arguments.backend, "--seconds", str(arguments.seconds)]
    return _ranks.run(arguments.ranks, command)


def _tune_as_rank(seconds: float, backend: str) -> int:
    import torch

    import torchcomms

    device = torch.device("cpu")
    if backend == "ncclx":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    comm = torchcomms.new_comm(backend, device, name="tune")
    first = comm.get_rank() == 0

    def show(done: float, following: str) -> None:
        end = "\r" if sys.stderr.isatty() else "\n"
        if first:
            print(f"{done:4.0%}  {following:40}", end=end, file=sys.stderr, flush=True)

    path = select.comm_tune(comm, seconds, show)
    if first:
        print(f"\nwritten: {path}")
    comm.finalize()
    return 0
