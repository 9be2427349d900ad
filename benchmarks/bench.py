#!/usr/bin/env python3
"""Times backends of torchcomms and PyTorch's own Gloo side by side, from Python, on CPU tensors.

The loop, the same for all: blocking calls back to back, several tensors in turn, after a warm-up;
of the ranks' mean times the slowest; the median over repeats. Ranks are bound alike; the backends
take turns. Every result is checked before it is timed.

float32, sum, root 0. Bytes are the full, world-sized tensor: the one that each rank holds for
all_reduce, broadcast, reduce and send_recv; all that is gathered, scattered or exchanged for the
others, so a block is bytes / nproc, at least one element. send_recv is half a round trip between
ranks 0 and 1. Where ctran-bench is among the backends, the roofline is what a rank must read and
write at least, at the speed of memcpy at that size on all ranks at once.
"""

from __future__ import annotations

import argparse
import sys

from side_by_side import cli, libraries

GLOO = "c10d/gloo"
DEFAULT = f"ctran,ctran+async,gloo,{GLOO},ctran-bench"


def library_of(backend: str) -> str:
    """A plain name is a backend of torchcomms, unless it is a C++ program's."""
    known = "/" in backend or backend == "ctran-bench" or backend in libraries.MPIS
    return backend if known else f"torchcomms/{backend}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--backends",
        help="comma-separated, the one to be compared first: a backend of torchcomms, with +async "
        f"for async_op=True and wait() at once; {GLOO} is torch.distributed's own, ctran-bench the "
        f"engine from C++ (default: what is here of {DEFAULT})",
    )
    cli.add_arguments(parser, "build/bench/bench")
    arguments = parser.parse_args()
    backends = arguments.backends or DEFAULT
    names = [library_of(backend) for backend in backends.split(",")]
    return cli.compare(arguments, names, [GLOO], required=arguments.backends is not None)


if __name__ == "__main__":
    sys.exit(main())
