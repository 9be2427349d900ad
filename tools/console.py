"""Running long commands so that whoever waits sees what is done, and how long it takes."""

from __future__ import annotations

import collections
import concurrent.futures
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "logs"

# Between two lines of progress where the output is no terminal.
QUIET_SECONDS = 5.0
PIP_PROGRESS = re.compile(r"^Progress (\d+) of (\d+)$")


class CommandFailed(Exception):
    """A command of a step failed; what it said has been printed."""


class TimeIsUp(Exception):
    """A command was ended, or not begun, because there is no more time for it."""


def _deadline() -> float:
    """When tests end, whatever is left of them: TEST_DEADLINE, in seconds since the epoch."""
    return float(os.environ.get("TEST_DEADLINE") or "inf")


def time_is_up(overtime: float = 0.0) -> bool:
    return time.time() > _deadline() + overtime


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a process that leads a session, with all of its group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def say(text: str) -> None:
    print(text, flush=True)


def fail(text: str) -> None:
    print(f"error: {text}", file=sys.stderr, flush=True)
    raise SystemExit(1)


def seconds(since: float) -> str:
    elapsed = time.monotonic() - since
    if elapsed < 60:
        return f"{elapsed:.1f} s"
    return f"{int(elapsed // 60)} min {int(elapsed % 60)} s"


def readable(line: str) -> str:
    """A line of a tool's output, as a line of progress."""
    progress = PIP_PROGRESS.match(line)
    if progress and int(progress[2]) > 0:
        done, total = int(progress[1]), int(progress[2])
        return f"{done / 1e6:.0f} of {total / 1e6:.0f} MB ({100 * done // total}%)"
    return line


class _Progress:
    """One live line on a terminal; elsewhere a line every few seconds."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._shown_at = self._start
        self._live = sys.stdout.isatty()
        self.line = ""

    def tick(self) -> None:
        now = time.monotonic()
        if now - self._shown_at < (0.2 if self._live else QUIET_SECONDS):
            return
        self._shown_at = now
        text = f"  {now - self._start:4.0f} s  {self.line}"
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            print("\r\033[K" + text[:width], end="", flush=True)
        else:
            say(text[:120])

    def clear(self) -> None:
        if self._live:
            print("\r\033[K", end="", flush=True)


def run(
    title: str,
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    show: str | None = None,
    drop: str | None = None,
    tail: int = 60,
) -> None:
    """Runs a command quietly, with progress; its whole output goes to a log under build/logs.

    Lines that match the regular expression `show` are printed as they come. If the command fails
    the last `tail` lines that do not match `drop` are printed and CommandFailed is raised.
    """
    if time_is_up():
        raise TimeIsUp
    say(f"==> {title}")
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / (re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") + ".log")
    start = time.monotonic()
    process = subprocess.Popen(
        [str(part) for part in command],
        cwd=cwd,
        env=None if env is None else dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        for text in process.stdout:
            lines.put(text.rstrip("\n"))
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    progress = _Progress()
    last: collections.deque[str] = collections.deque(maxlen=tail)
    try:
        with log.open("w") as out:
            while True:
                try:
                    line = lines.get(timeout=0.2)
                except queue.Empty:
                    if time_is_up():
                        raise TimeIsUp from None
                    progress.tick()
                    continue
                if line is None:
                    break
                if not PIP_PROGRESS.match(line):
                    out.write(line + "\n")
                    if not (drop and re.search(drop, line)):
                        last.append(line)
                if line.strip():
                    progress.line = readable(line.strip())
                if show and re.search(show, line):
                    progress.clear()
                    say("    " + line.strip())
                progress.tick()
        code = process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        progress.clear()
    if code != 0:
        say("\n".join(last))
        say(f"  failed after {seconds(start)}: {' '.join(map(str, command))}")
        say(f"  whole output: {os.path.relpath(log, ROOT)}")
        raise CommandFailed(title)
    say(f"  done in {seconds(start)}")


def attach(
    title: str,
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    overtime: float = 0.0,
) -> None:
    """Runs a command that shows its own progress, on our own output.

    One that ends by itself when time is up gets `overtime`, in seconds, for that.
    """
    if time_is_up():
        raise TimeIsUp
    say(f"==> {title}")
    start = time.monotonic()
    process = subprocess.Popen(
        [str(part) for part in command], cwd=ROOT, env=env, stdin=subprocess.DEVNULL
    )
    while True:
        try:
            code = process.wait(timeout=1)
            break
        except subprocess.TimeoutExpired:
            if not time_is_up(overtime):
                continue
            process.terminate()
            process.wait()
            raise TimeIsUp from None
        except BaseException:  # Ctrl-C, which the command has got, too
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.terminate()
            raise
    if code != 0:
        say(f"  failed after {seconds(start)} with exit code {code}")
        raise CommandFailed(title)
    say(f"  done in {seconds(start)}")


def attach_all(
    commands: Mapping[str, Sequence[str | Path]], *, env: Mapping[str, str] | None = None
) -> None:
    """Runs commands at the same time, by title, and shows what each says once it has ended."""

    def ended_well(title: str, command: Sequence[str | Path]) -> bool:
        start = time.monotonic()
        done = subprocess.run(
            [str(part) for part in command],
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        failed = f"failed after {seconds(start)} with exit code {done.returncode}"
        how = failed if done.returncode else f"done in {seconds(start)}"
        say(f"==> {title}\n{done.stdout}  {how}")
        return done.returncode == 0

    with concurrent.futures.ThreadPoolExecutor(len(commands)) as pool:
        well = list(pool.map(ended_well, commands, commands.values()))
    failed = [title for title, ended in zip(commands, well, strict=True) if not ended]
    if failed:
        raise CommandFailed(", ".join(failed))
