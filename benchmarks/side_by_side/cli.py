"""The options that the benchmarks share, and what they do with them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from side_by_side import libraries, report, sweep
from side_by_side.operations import OPERATIONS, parse_size

DEFAULT_SIZES = "8,64,512,4K,32K,256K,1M,2M,16M,64M"
QUICK_SIZES = "8,4K,256K,1M"
QUICK_OPS = "all_reduce,all_gather,reduce_scatter,broadcast,all_to_all,barrier"


def add_arguments(parser: argparse.ArgumentParser, output: str) -> None:
    """The options of every benchmark here."""
    parser.add_argument("-n", "--nproc", type=int, default=2, help="ranks (default 2)")
    parser.add_argument("--ops", help="comma-separated, default all: " + ", ".join(OPERATIONS))
    parser.add_argument("--sizes", help=f"bytes, with K and M (default {DEFAULT_SIZES})")
    parser.add_argument("--repeats", type=int, help="turns of each library (default 7)")
    parser.add_argument("--min-ms", type=float, help="length of one turn (default 20)")
    parser.add_argument(
        "--statistic",
        choices=["median", "min"],
        default="median",
        help="of a library's turns; min is for machines that are busy with other things too",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"by default only {QUICK_OPS} at {QUICK_SIZES}, 3 turns of 5 ms",
    )
    parser.add_argument(
        "--pin",
        default="auto",
        help="auto (a CPU of its own for each rank if there are enough), none, or 0,1,…",
    )
    parser.add_argument(
        "--limit", type=float, default=120, help="seconds until a silent library is given up"
    )
    parser.add_argument(
        "--output", type=Path, default=Path(output), help=f".json and .png (default {output})"
    )


def settings_of(arguments: argparse.Namespace) -> sweep.Settings:
    """What the options say, with the defaults of --quick or of a full run."""
    quick = arguments.quick
    operations = arguments.ops or (QUICK_OPS if quick else ",".join(OPERATIONS))
    unknown = set(operations.split(",")) - OPERATIONS.keys()
    if unknown:
        raise SystemExit(f"no such operation: {', '.join(sorted(unknown))}")
    return sweep.Settings(
        operations=operations.split(","),
        sizes=[
            parse_size(size)
            for size in (arguments.sizes or (QUICK_SIZES if quick else DEFAULT_SIZES)).split(",")
        ],
        repeats=arguments.repeats or (3 if quick else 7),
        min_ms=arguments.min_ms or (5 if quick else 20),
        statistic=arguments.statistic,
    )


def compare(
    arguments: argparse.Namespace, names: list[str], rivals: list[str], required: bool
) -> int:
    """Times the libraries and reports the first against the best of `rivals`.

    Libraries that are not here are left out with a note. Returns the exit status: 1 if anything
    failed or, with `required`, was left out.
    """
    settings = settings_of(arguments)
    cpus = libraries.placement(arguments.pin, arguments.nproc)
    console = Console(width=None if sys.stdout.isatty() else 160)
    started, missing = libraries.start_all(names, arguments.nproc, cpus, arguments.limit, console)
    try:
        if not started:
            raise SystemExit("nothing to time:\n" + "\n".join(missing.values()))
        rows = sweep.run(started, settings, console)
    finally:
        for library in started:
            library.close()
    result = report.Report(rows, arguments.nproc, settings.statistic, names[0], rivals)
    result.print(console)
    record = sweep.record(rows, arguments.nproc, cpus, settings)
    report.write(result, {**record, "missing": missing}, arguments.output, console)
    failed = report.complain(result, missing, console)
    return int(failed or (required and bool(missing)))
