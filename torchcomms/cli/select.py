"""`torchcomms explain` and `torchcomms tune`."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from torchcomms import _arguments, _files, _ranks
from torchcomms._errors import CommError

_EXPLAIN_END = """\
example:
  torchcomms explain all_reduce 1M --ranks 8
      which algorithm 8 ranks of this host would use, why, and what else there is
  torchcomms explain all_gather 64K --ranks 8 --hosts 2 --json
      the same between hosts, for programs

exit code: 0; 2 if there is no such collective, size or type
"""
_TUNE = """\
Measures the algorithms of every collective, and keeps which is fastest at which size: later
communicators of as many ranks on machines like this one use it. Tells how far it is.
"""
_TUNE_END = """\
example:
  torchcomms tune --ranks 8 --seconds 60
      starts 8 ranks on this host
  torchrun --nnodes 2 --nproc-per-node 8 ... -m torchcomms tune
      between the hosts of a launcher
  torchcomms tune --backend ncclx --ranks 4
      ctran beside NCCL, on the GPUs of this host
  torchcomms tune --device cuda --ranks 4
      the algorithms of ctran there
  torchcomms tune --backend nccl --ranks 8 --table nccl.csv
      algorithms and protocols of NCCL itself, for TORCHCOMMS_NCCL_TUNING (docs/backends/nccl.md)

exit code: 0; 1 if it fails; 2 wrong arguments
"""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    raw = argparse.RawDescriptionHelpFormatter
    explain = commands.add_parser(
        "explain",
        help="what would run, and why (docs/selection.md)",
        description="Says which algorithm would serve a call, why, and what the others would take.",
        epilog=_EXPLAIN_END,
        formatter_class=raw,
    )
    explain.add_argument("collective", help="such as all_reduce")
    explain.add_argument(
        "bytes", type=_arguments.size(), help="that a rank contributes: 4096, 64K, 1M"
    )
    explain.add_argument(
        "-n", "--ranks", type=_arguments.count(), default=2, help="of a host (default 2)"
    )
    explain.add_argument(
        "--hosts", type=_arguments.count(), default=1, help="with so many each (default 1)"
    )
    explain.add_argument("--dtype", default="float32", help="such as bfloat16 (default float32)")
    explain.add_argument("--json", action="store_true", help="print data, for programs")
    tune = commands.add_parser(
        "tune",
        help="measure what is best on this machine",
        description=_TUNE,
        epilog=_TUNE_END,
        formatter_class=raw,
    )
    tune.add_argument(
        "-n",
        "--ranks",
        type=_arguments.count(2),
        default=2,
        help="of this host (default 2); a launcher's ranks, on its hosts, if one started this",
    )
    tune.add_argument(
        "--backend",
        choices=("ctran", "ncclx", "nccl"),
        default="ctran",
        help="algorithms of ctran (default), the members of ncclx, ctran and NCCL, on GPUs, or "
        "NCCL's algorithms and protocols",
    )
    tune.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        help="default: cpu, and cuda with --backend ncclx or nccl",
    )
    tune.add_argument(
        "--table",
        type=Path,
        metavar="FILE",
        help="what to write with --backend nccl (default: nccl.csv)",
    )
    tune.add_argument(
        "--seconds", type=_arguments.seconds, default=30, help="about how long (default 30)"
    )
    tune.add_argument("--json", action="store_true", help="print data, for programs")


def explain(arguments: argparse.Namespace) -> int:
    import torch

    from torchcomms import select

    dtype = getattr(torch, arguments.dtype, None)
    if not isinstance(dtype, torch.dtype):
        print(f"error: torch has no data type '{arguments.dtype}'", file=sys.stderr)
        return 2
    try:
        found = select.explain(
            arguments.collective, arguments.bytes, arguments.ranks, arguments.hosts, dtype
        )
        print(json.dumps(asdict(found)) if arguments.json else found)
    except (ValueError, CommError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _is_on_gpus(arguments: argparse.Namespace) -> bool:
    usual = "cpu" if arguments.backend == "ctran" else "cuda"
    return bool((arguments.device or usual) == "cuda")


def tune(arguments: argparse.Namespace) -> int:
    """Runs as one process per rank: this one starts them, or is one of a launcher's."""
    wrong = _fault(arguments)
    if wrong:
        raise CommError(wrong)
    if _ranks.is_rank():
        return _tune_as_rank(arguments)
    if _is_on_gpus(arguments):
        _ranks.check_gpus(arguments.ranks)
    command = ["tune", "--backend", arguments.backend, "--seconds", str(arguments.seconds)]
    command += ["--device", arguments.device] if arguments.device else []
    command += ["--table", str(arguments.table)] if arguments.table else []
    return _ranks.run(arguments.ranks, command + ["--json"] * arguments.json)


def _fault(arguments: argparse.Namespace) -> str:
    if arguments.backend != "nccl":
        return "--table is for --backend nccl" if arguments.table else ""
    if not _is_on_gpus(arguments):
        return "NCCL is for GPUs: leave --device out"
    folder = (arguments.table or Path()).parent
    return "" if folder.is_dir() else f"there is no folder '{folder}' for the table"


def _tune_as_rank(arguments: argparse.Namespace) -> int:
    import torch

    import torchcomms
    from torchcomms import select
    from torchcomms.select import _nccl

    device = _ranks.own_gpu() if _is_on_gpus(arguments) else torch.device("cpu")
    if arguments.backend == "nccl":
        _nccl.offer()
    comm = torchcomms.new_comm(arguments.backend, device, name="tune")
    first = comm.get_rank() == 0

    def show(done: float, following: str) -> None:
        end = "\r" if sys.stderr.isatty() else "\n"
        if first:
            print(f"{done:4.0%}  {following:40}", end=end, file=sys.stderr, flush=True)

    if arguments.backend == "nccl":
        path = arguments.table or Path("nccl.csv")
        table = _nccl.tune(comm, arguments.seconds, show)
        if first:
            _files.write(path, table)
    else:
        path = select.comm_tune(comm, arguments.seconds, show)
    if first and sys.stderr.isatty():
        print(file=sys.stderr)
    if first:
        use = "; export TORCHCOMMS_NCCL_TUNING=" + str(path.resolve())
        text = f"written: {path}{use if arguments.backend == 'nccl' else ''}"
        print(json.dumps({"table": str(path)}) if arguments.json else text)
    comm.finalize()
    return 0
