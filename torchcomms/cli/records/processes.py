"""Processes of this host, as /proc shows them to their user."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from torchcomms.cli.records import terminal

_MEMORY = "/memfd:ctran"
_STACK_SECONDS = 5
_STATES = {"T": "stopped by a signal", "t": "stopped by a debugger", "D": "waits for a device"}


def pids() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())


def memories(pid: int) -> Iterator[str]:
    """Paths of the memory in which a process may have recorded; none if it is not ours.

    One that can only read it looks at it as we do, for a moment, and may go on to that of another
    job: counted as a holder, it would make one job of the two.
    """
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):
        for name in os.listdir(folder):
            path = f"{folder}/{name}"
            with suppress(OSError):
                # The link's own mode says how the file is open.
                if os.readlink(path).startswith(_MEMORY) and os.lstat(path).st_mode & stat.S_IWUSR:
                    yield path


def _told(pid: int, what: str) -> str:
    """By the kernel: "" of a process that is not there. Names of processes are any bytes."""
    try:
        return Path(f"/proc/{pid}/{what}").read_text(errors="replace")
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    return _told(pid, "stat").rpartition(")")[2].split()


def lives(pid: int, start: int) -> bool:
    """Whether the process of that id is the one that started then; a zombie has ended."""
    fields = _stat(pid)
    return len(fields) > 19 and fields[0] not in "ZX" and int(fields[19]) == start


def inner_pid(pid: int) -> int:
    """What a process in a container calls itself."""
    for line in _told(pid, "status").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid


def where(pid: int, *, stacks: bool = True) -> list[str]:
    """What a process is doing, as far as this user may know: innermost first. `stacks`: also in
    Python."""
    lines = []
    fields = _stat(pid)
    if fields and fields[0] in _STATES:
        lines.append(_STATES[fields[0]])
    if stacks:
        lines += _python_stack(pid)
    if not lines:
        function = _told(pid, "wchan").strip()
        if function not in ("", "0"):
            lines.append(f"sleeps in the kernel, in {function}")
    if not lines and fields and fields[0] == "R":
        lines.append("computes")
    return lines


def _python_stack(pid: int) -> list[str]:
    """Of the main thread, by py-spy if it is installed and may look."""
    command = shutil.which("py-spy")
    if command is None:
        return []
    try:
        done = subprocess.run(
            [command, "dump", "--nonblocking", "--pid", str(pid)],
            capture_output=True,
            text=True,
            timeout=_STACK_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    frames: list[str] = []
    inside = False
    for line in done.stdout.splitlines():
        if line.startswith("Thread"):
            inside = "MainThread" in line
        elif inside and line.strip():
            frames.append(terminal.printable(line.strip()))
    return frames
