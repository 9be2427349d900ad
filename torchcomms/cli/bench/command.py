"""The command: its arguments, and what each rank does."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from torchcomms import _arguments, _files, _ranks
from torchcomms._errors import CommError
from torchcomms.version import __version__

_NAMES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send_recv",
    "all_gather_v",
    "reduce_scatter_v",
    "all_to_all_v",
    "barrier",
)
_TYPES = ("float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8")

_DESCRIPTION = """\
Times operations, with the columns and the sizes of nccl-tests: starts ranks on this host, or is
one of a launcher's (torchrun). Every operation is checked before it is timed, on data that
depends on rank and position; the calls of a measurement are blocking, back to back. Times are the
slowest rank's mean.

Bytes are the buffer that each rank holds for all_reduce, broadcast, reduce and send_recv, and all
that is gathered, scattered or exchanged for the others. algbw is bytes / time. busbw is that
times 2(n-1)/n for all_reduce, (n-1)/n for what is gathered, scattered or exchanged, else 1: how
fast the links must be, whatever the number of ranks. send_recv goes around a ring. Of all_gather_v,
reduce_scatter_v and all_to_all_v the blocks grow with the rank, the last being about n times the
first.
"""
_END = """\
example:
  torchcomms bench --ranks 4
      all operations of ctran, from 8 bytes to 32 MB
  torchcomms bench all_reduce all_to_all -b 1K -e 64M -f 4 --compare gloo,c10d/gloo --plot busbw.svg
      two of them beside other libraries, and a picture
  torchrun --nnodes 2 --nproc-per-node 8 ... -m torchcomms bench --device cuda --compare nccl
      on the hosts of a launcher, on GPUs, beside NCCL

exit code: 0; 1 if a result is wrong; 2 if a library cannot be used, the ranks do not come or the
plot cannot be written
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "bench",
        help="time operations, as nccl-tests do, also beside other libraries",
        description=_DESCRIPTION,
        epilog=_END,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    operations = add(
        "operations",
        nargs="*",
        metavar="OPERATION",
        help=f"of {', '.join(_NAMES)}, or all (default)",
    )
    operations.completes = lambda: _NAMES  # type: ignore[attr-defined]
    ranks = parser.add_argument_group("who")
    ranks.add_argument(
        "--ranks", type=_arguments.count(), metavar="N", help="of this host (default: 2)"
    )
    ranks.add_argument("--backend", default="ctran", help="of torchcomms (default: ctran)")
    ranks.add_argument(
        "--compare",
        default="",
        metavar="LIST",
        help="other libraries, with commas: backends of torchcomms (gloo, nccl, ...), those of "
        "torch.distributed (c10d/gloo, c10d/nccl), or mpi, where torch is built with it and mpirun "
        "has started the ranks",
    )
    ranks.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="(default: cpu)")
    what = parser.add_argument_group("what")
    what.add_argument(
        "-b", "--begin", type=_arguments.size(1), default=8, metavar="SIZE", help="(default: 8)"
    )
    what.add_argument("-e", "--end", type=_arguments.size(1), metavar="SIZE", help="(default: 32M)")
    what.add_argument("-f", "--factor", type=float, metavar="N", help="of sizes (default: 4)")
    what.add_argument(
        "-i", "--step", type=_arguments.size(1), metavar="SIZE", help="instead of a factor"
    )
    what.add_argument("-d", "--dtype", default="float32", choices=_TYPES, help="(default: float32)")
    what.add_argument("-o", "--op", default="sum", choices=("sum", "max", "min"))
    what.add_argument(
        "-r", "--root", type=_arguments.count(0), default=0, metavar="RANK", help="(default: 0)"
    )
    what.add_argument(
        "--in-place",
        action="store_true",
        help="all_gather and reduce_scatter, too; all_reduce, reduce and broadcast always are",
    )
    how = parser.add_argument_group("how")
    how.add_argument(
        "-n",
        "--iterations",
        type=_arguments.count(),
        metavar="N",
        help="(default: what fits in 50 ms, 5 at least)",
    )
    how.add_argument(
        "-w", "--warmup", type=_arguments.count(0), default=5, metavar="N", help="(default: 5)"
    )
    how.add_argument("--no-check", action="store_true", help="do not look at results")
    out = parser.add_argument_group("output")
    out.add_argument("--json", action="store_true", help="print data, for programs")
    out.add_argument("--plot", type=Path, metavar="FILE", help="write busbw by size as SVG")


def run(parsed: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Returns the exit code. `arguments` are those that were parsed, for the ranks.

    Raises:
        CommError, OSError: what the command says.
    """
    wrong = _fault(parsed)
    if wrong:
        raise CommError(wrong)
    if _ranks.is_rank() or "OMPI_COMM_WORLD_RANK" in os.environ:
        return _as_rank(parsed)
    if parsed.root >= (parsed.ranks or 2):
        raise CommError(f"there is no rank {parsed.root}")
    if parsed.device == "cuda":
        _ranks.check_gpus(parsed.ranks or 2)
    return _ranks.run(parsed.ranks or 2, arguments)


def _fault(parsed: argparse.Namespace) -> str:
    unknown = [name for name in parsed.operations if name not in (*_NAMES, "all")]
    if unknown:
        return f"there is no operation '{unknown[0]}'; there are {', '.join(_NAMES)}"
    if parsed.factor is not None and not 1 < parsed.factor < math.inf:
        return "a factor of sizes must be a number larger than 1"
    if parsed.end is not None and parsed.end < parsed.begin:
        return "the sizes end before they begin"
    if parsed.plot is not None and not parsed.plot.parent.is_dir():
        return f"there is no folder '{parsed.plot.parent}' for the plot"
    return _why_unwritable(parsed.plot) if parsed.plot is not None else ""


def _why_unwritable(file: Path) -> str:
    """Why a file cannot be written; empty if it can. Leaves it as it is."""
    is_new = not file.exists()
    try:
        with file.open("ab"):
            pass
        if is_new:
            file.unlink(missing_ok=True)  # another rank may have been faster
    except OSError as error:
        return f"{file} cannot be written: {error.strerror}"
    return ""


def _as_rank(parsed: argparse.Namespace) -> int:
    import torch

    from torchcomms import _rendezvous
    from torchcomms.cli.bench import libraries, measure, report
    from torchcomms.cli.bench.operations import OPERATIONS, Place

    names = [parsed.backend, *filter(None, parsed.compare.split(","))]
    device = _ranks.own_gpu() if parsed.device == "cuda" else torch.device("cpu")
    try:
        rank, size, store = _rendezvous.resolve("bench", None, timedelta(seconds=60))
        opened = libraries.open_all(names, device)
    except CommError:
        raise
    except (RuntimeError, ValueError, ImportError) as error:  # those of torch have stacks below
        raise CommError(str(error).partition("\n")[0]) from error
    if not 0 <= parsed.root < size:
        raise CommError(f"there is no rank {parsed.root}")
    if store is None:
        store = torch.distributed.HashStore()
    place = Place(
        rank,
        size,
        parsed.root,
        parsed.op,
        getattr(torch, parsed.dtype),
        device,
        is_in_place=parsed.in_place,
    )
    end = parsed.end or max(32 << 20, parsed.begin)
    plan = measure.Plan(
        measure.sizes(parsed.begin, end, parsed.factor or 4, parsed.step),
        parsed.iterations,
        parsed.warmup,
        not parsed.no_check,
    )
    bench = measure.Bench(place, plan, store)
    about: dict[str, Any] = {
        "version": __version__,
        "ranks": size,
        "dtype": parsed.dtype,
        "op": parsed.op,
        "root": parsed.root,
        "device": parsed.device,
        "in_place": parsed.in_place,
        "libraries": [library.name for library in opened],
    }
    shown = _Shown(rank == 0, parsed.json)
    title = f"torchcomms {__version__}: {size} ranks, {parsed.dtype}, {parsed.op}, {parsed.device}"
    shown.line(f"# {title}\n{report.heading(about['libraries'])}")
    chosen = _NAMES if not parsed.operations or "all" in parsed.operations else parsed.operations
    rows: list[measure.Row] = []
    for name in dict.fromkeys(chosen):
        if name in ("send_recv",) and size < 2:
            continue
        group: list[measure.Row] = []
        shown.progress(name)
        for row in bench.rows(opened, OPERATIONS[name]):
            group.append(row)
            if len(group) == len(opened):
                shown.line(report.line(group))
                shown.progress(f"{name}, {row.bytes} bytes done")
                rows += group
                group = []
    shown.progress("")
    shown.line(report.summary(rows))
    if rank == 0 and parsed.json:
        print(report.data(about, rows), flush=True)
    for library in opened:
        library.end()
    if rank == 0 and parsed.plot is not None:
        _files.write(parsed.plot, report.plot(title, rows))
    return 1 if any(row.wrong for row in rows) else 0


class _Shown:
    """What rank 0 prints while it measures."""

    def __init__(self, speaks: bool, as_data: bool) -> None:
        self._speaks = speaks
        self._as_data = as_data
        self._moves = speaks and sys.stderr.isatty()

    def line(self, text: str) -> None:
        if self._speaks and not self._as_data:
            self.progress("")
            print(text, flush=True)

    def progress(self, text: str) -> None:
        if self._moves:
            print(f"\r{text:60}\r", end="", file=sys.stderr, flush=True)
