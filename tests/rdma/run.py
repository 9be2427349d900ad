#!/usr/bin/env python3
"""Runs the tests of RDMA in a virtual machine, whose kernel has soft-RoCE (rdma_rxe).

Or, after --, any command in that machine, with the device rxe0 and the host's files (read-only):

    python3 tests/rdma/run.py -- rdma link
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import kernel
import machine
from console import LOGS, CommandFailed, fail, say
from system import refuse_rdma_elsewhere

FOLDER = kernel.ROOT / "build" / "rdma"
GUEST = Path(__file__).with_name("guest.sh")


def in_guest(
    command: Sequence[str | Path],
    bounds: machine.Bounds,
    *,
    on_line: Callable[[str], None] = say,
) -> int:
    """The exit status of a command in a machine of its own, whose lines `on_line` gets."""
    refuse_rdma_elsewhere()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # which ends qemu, too
    try:
        booted = kernel.prepare(FOLDER)
        LOGS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="run-", dir=FOLDER) as share:
            say("==> Starting the virtual machine")
            return machine.run(
                booted,
                ["sh", GUEST, *command],
                LOGS / "rdma-console.log",
                Path(share),
                bounds=bounds,
                on_line=on_line,
            )
    except (kernel.KernelError, machine.GuestFailed) as error:
        fail(str(error))
    except CommandFailed:
        fail("the virtual machine could not be made")
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    raise AssertionError("unreachable")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=float, default=240, help="seconds for all of it")
    parser.add_argument("--silence", type=float, default=60, help="seconds between two lines")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    bounds = machine.Bounds(silence=arguments.silence, total=arguments.limit)
    return in_guest(arguments.command, bounds)


if __name__ == "__main__":
    sys.exit(main())
