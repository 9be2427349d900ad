#!/usr/bin/env python3
"""Runs the tests of RDMA in a virtual machine, whose kernel has soft-RoCE (rdma_rxe).

Or, after --, any command in that machine, with the device rxe0 and the host's files (read-only):

    python3 tests/rdma/run.py -- rdma link

With --two the command runs in two machines that a network joins, each with a device rxe0 and the
variable MACHINE_OF_TWO, which is 0 or 1; /run/both is a folder of both.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
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


def prepared() -> kernel.Kernel:
    refuse_rdma_elsewhere()
    try:
        return kernel.prepare(FOLDER)
    except kernel.KernelError as error:
        fail(str(error))
    except CommandFailed:
        fail("the virtual machine could not be made")
    raise AssertionError("unreachable")


def in_guest(
    command: Sequence[str | Path],
    bounds: machine.Bounds,
    *,
    on_line: Callable[[str], None] = say,
    pair: machine.Pair | None = None,
) -> int:
    """The exit status of a command in a machine of its own, whose lines `on_line` gets."""
    console = "rdma-console.log" if pair is None else f"rdma-console-{pair.machine}.log"

    def qemu(booted: kernel.Kernel, share: Path, console: Path) -> list[str]:
        return machine.qemu_command(booted, share, console, pair)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # which ends qemu, too
    try:
        booted = prepared()
        LOGS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="run-", dir=FOLDER) as share:
            say("==> Starting the virtual machine")
            return machine.run(
                booted,
                ["sh", GUEST, *command],
                LOGS / console,
                Path(share),
                bounds=bounds,
                on_line=on_line,
                qemu=qemu,
            )
    except machine.GuestFailed as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    raise AssertionError("unreachable")


def in_two_guests(command: Sequence[str | Path], bounds: machine.Bounds) -> int:
    """The first exit status of a command that is not 0, in two machines that a network joins."""
    prepared()  # once, before both want it
    own = [sys.executable, __file__, f"--limit={bounds.total}", f"--silence={bounds.silence}"]
    with (
        tempfile.TemporaryDirectory(prefix="ctran-two-") as folder,
        subprocess.Popen(
            [*own, "--machine=1", f"--folder={folder}", "--", *map(str, command)],
            preexec_fn=machine.die_with_parent,
        ) as other,
    ):
        try:
            status = in_one_of_two(command, bounds, machine.Pair(0, Path(folder)))
            return status or other.wait()
        finally:
            other.terminate()


def in_one_of_two(command: Sequence[str | Path], bounds: machine.Bounds, pair: machine.Pair) -> int:
    def tell(line: str) -> None:
        say(f"{pair.machine}: {line}")

    return in_guest(command, bounds, on_line=tell, pair=pair)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=float, default=240, help="seconds for all of it")
    parser.add_argument("--silence", type=float, default=60, help="seconds between two lines")
    parser.add_argument("--two", action="store_true", help="in two machines that a network joins")
    parser.add_argument("--machine", type=int, help=argparse.SUPPRESS)  # of two, which --two starts
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    bounds = machine.Bounds(silence=arguments.silence, total=arguments.limit)
    if arguments.two:
        return in_two_guests(arguments.command, bounds)
    if arguments.machine is not None:
        pair = machine.Pair(arguments.machine, arguments.folder)
        return in_one_of_two(arguments.command, bounds, pair)
    return in_guest(arguments.command, bounds)


if __name__ == "__main__":
    sys.exit(main())
