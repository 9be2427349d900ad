#!/usr/bin/env python3
"""Compares ctran with the MPIs and PyTorch's Gloo between processes of this host, in one run.

The loop, the same for all: blocking calls back to back, several buffers in turn, after a warm-up;
of the ranks' mean times the slowest; the median over repeats. Ranks are bound alike; the libraries
take turns. Every result is checked before it is timed. ctran and the MPIs are called from C++
(the loop is cpp/rank.h), c10d/gloo and torchcomms/* from Python.

float32, sum, root 0. Bytes are the full, world-sized buffer: the one that each rank holds for
all_reduce, broadcast, reduce and send_recv; all that is gathered, scattered or exchanged for the
others, so a block is bytes / ranks, at least one element. send_recv is half a round trip between
ranks 0 and 1. The roofline is what a rank must read and write at least, at the speed of memcpy at
that size on all ranks at once.
"""

from __future__ import annotations

import argparse
import sys

from side_by_side import cli, libraries

DEFAULT = ",".join(["ctran-bench", *libraries.MPIS, "c10d/gloo"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--libraries",
        help="comma-separated, ours first; also torchcomms/NAME, and +async after a Python one "
        f"(default: what is here of {DEFAULT})",
    )
    parser.add_argument(
        "--install",
        action="store_true",
        help=f"first install the MPIs from PyPI into {libraries.MPI_ROOT}",
    )
    cli.add_arguments(parser, "build/bench/compare_cpu")
    arguments = parser.parse_args()
    if arguments.install:
        libraries.install_mpis()
    names = (arguments.libraries or DEFAULT).split(",")
    required = arguments.libraries is not None
    return cli.compare(arguments, names, list(libraries.MPIS), required)


if __name__ == "__main__":
    sys.exit(main())
