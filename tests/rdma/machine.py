"""A virtual machine that sees the host's files, runs one command, and is gone after it."""

from __future__ import annotations

import collections
import ctypes
import os
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel import Kernel

PR_SET_PDEATHSIG = 1
LINES_OF_CONSOLE = 50


class GuestFailed(Exception):
    """The guest panicked, hung or did not start: how, and the last lines of its console."""


@dataclass(frozen=True)
class Bounds:
    """How long the host waits, in seconds."""

    start: float = 60  #: until the command's first line
    silence: float = 60  #: between two lines of it
    total: float = 240


BOUNDS = Bounds()


@dataclass(frozen=True)
class Pair:
    """Of two machines that a network joins: which one this is."""

    machine: int  #: 0 or 1, which the guest finds in its variable `machine`
    folder: Path  #: the ends of the network, and what both guests see as 9p's `both`

    def options(self) -> list[str]:
        ends = [self.folder / f"network{end}" for end in (self.machine, 1 - self.machine)]
        network = f"dgram,id=both,local.type=unix,local.path={ends[0]}"
        card = f"virtio-net-pci,netdev=both,mac=52:54:00:00:77:{self.machine + 1:02x}"
        files = self.folder / "both"
        files.mkdir(exist_ok=True)
        return [
            *("-netdev", f"{network},remote.type=unix,remote.path={ends[1]}", "-device", card),
            *("-virtfs", f"local,path={files},mount_tag=both,security_model=none"),
        ]


def qemu_command(kernel: Kernel, share: Path, console: Path, pair: Pair | None = None) -> list[str]:
    # KVM is not asked for: where it is offered inside of virtual machines it may hang the guest.
    cpus = max(2, min(4, len(os.sched_getaffinity(0))))
    machine = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max"]
    machine += ["-smp", str(cpus), "-m", "2048", "-nodefaults", "-no-reboot", "-display", "none"]
    # A panic is a reboot, which -no-reboot makes qemu's end.
    options = "console=ttyS0 loglevel=5 panic=-1 oops=panic mitigations=off tsc=reliable"
    if pair is not None:
        options += f" machine={pair.machine}"
        machine += pair.options()
    machine += ["-kernel", str(kernel.image), "-initrd", str(kernel.initramfs), "-append", options]
    machine += ["-serial", f"file:{console}", "-serial", "stdio"]
    for path, name, more in (("/", "root", "readonly=on,multidevs=remap"), (share, "share", "")):
        escaped = str(path).replace(",", ",,")
        machine += ["-virtfs", f"local,path={escaped},mount_tag={name},security_model=none,{more}"]
    return [part.rstrip(",") for part in machine]


def run(
    kernel: Kernel,
    command: Sequence[str | Path],
    console: Path,
    share: Path,
    *,
    bounds: Bounds = BOUNDS,
    on_line: Callable[[str], None] = print,
    qemu: Callable[[Kernel, Path, Path], list[str]] = qemu_command,
) -> int:
    """The exit status of a command in the guest, whose lines are given to `on_line` as they come.

    The guest's /run/share is `share`, to which it can write. Its kernel's own words go to the file
    `console`.
    """
    share.mkdir(parents=True, exist_ok=True)
    (share / "status").unlink(missing_ok=True)
    (share / "command").write_text(shlex.join(map(str, command)) + "\n")
    console.write_bytes(b"")
    last: collections.deque[str] = collections.deque(maxlen=LINES_OF_CONSOLE)

    def failed(how: str) -> GuestFailed:
        words = console.read_text(errors="replace").splitlines()[-LINES_OF_CONSOLE:]
        kernel_says = f"its kernel's last lines ({console} has them all):"
        told = "\n  ".join(["the guest's last lines:", *last, kernel_says, *words])
        return GuestFailed(f"the virtual machine {how}; {told}")

    process = subprocess.Popen(
        qemu(kernel, share, console),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=die_with_parent,
    )
    try:
        for line in lines_of(process, bounds, failed):
            last.append(line)
            on_line(line)
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        raise failed("has closed its output and does not end") from None
    finally:
        process.kill()
        process.wait()
    status = share / "status"
    if not status.exists():
        raise failed(f"ended before its command did (qemu's status is {process.returncode})")
    return int(status.read_text())


def lines_of(
    process: subprocess.Popen[bytes], bounds: Bounds, failed: Callable[[str], GuestFailed]
) -> collections.abc.Iterator[str]:
    """What a process prints, until it ends or does not keep to `bounds`."""
    assert process.stdout is not None
    start = time.monotonic()
    silent_until = start + bounds.start
    what = f"printed nothing for {bounds.start:.0f} s after its start"
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            now = time.monotonic()
            if now > start + bounds.total:
                raise failed(f"was not done within {bounds.total:.0f} s")
            if now > silent_until:
                raise failed(what)
            if not selector.select(min(silent_until, start + bounds.total) - now):
                continue
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace").rstrip("\r")
            silent_until = time.monotonic() + bounds.silence
            what = f"printed nothing for {bounds.silence:.0f} s"
    if pending:
        yield pending.decode(errors="replace").rstrip("\r")


def die_with_parent() -> None:
    """In the child: whatever ends this process, and be it SIGKILL, ends qemu."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
