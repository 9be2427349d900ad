"""The test's side of rank processes: starts them, gives them work, ends them for certain."""

from __future__ import annotations

import atexit
import multiprocessing as mp
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from harness import worker
from harness.functions import FunctionName
from harness.programs import python_path

# Guards against hangs, not expectations: far above what anything here takes.
GUARD_SECONDS = float(os.environ.get("HARNESS_GUARD_SECONDS", "240"))
# How long the other ranks may go on when one has failed.
GRACE_SECONDS = 5.0

_CONTEXT = mp.get_context("forkserver")
_TESTS = str(Path(__file__).parents[1])
_PY_SPY = Path(sys.executable).with_name("py-spy")


@dataclass(frozen=True)
class Returned:
    value: Any


@dataclass(frozen=True)
class Raised:
    error: str
    traceback: str


@dataclass(frozen=True)
class Died:
    """`code` is the exit status, or minus the signal."""

    code: int


Outcome = Returned | Raised | Died


class RanksFailed(AssertionError):
    """A function has not returned on every rank."""


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def start_server() -> None:
    """Starts the process from which ranks are forked, if it is not there yet."""
    path = python_path(_TESTS)
    with _environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTHONPATH=path):
        _CONTEXT.set_forkserver_preload(["torch", "torchcomms", "pytest", "harness.matrix"])
        forkserver.ensure_running()


def state_of(pid: int) -> str:
    """The state of a process as /proc tells it: R, S, D, ...; Z or X when it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    return stat.rpartition(")")[2].split()[0]


def _all_threads_sleep(pid: int, after: float) -> bool:
    time.sleep(after)
    threads = [int(task.name) for task in Path(f"/proc/{pid}/task").glob("*")]
    return bool(threads) and all(state_of(thread) == "S" for thread in threads)


class Process:
    """One rank's process."""

    def __init__(self, index: int, folder: Path) -> None:
        self.index = index
        self.log = folder / f"rank{index}.log"
        self.connection, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(
            target=worker.main, args=(theirs, str(self.log), str(folder / "store"))
        )
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None
        return pid

    @property
    def sentinel(self) -> int:
        return self._process.sentinel

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    def signal(self, number: int) -> None:
        """To the process alone, not to what it has forked."""
        os.kill(self.pid, number)

    def is_asleep(self) -> bool:
        """Whether all its threads wait for something.

        A main thread that sleeps beside one that runs may wait for no more than the interpreter's
        lock.
        """
        return all(_all_threads_sleep(self.pid, after) for after in (0, 0.01))

    def end(self) -> None:
        """Kills it with all that it has forked."""
        # Its group has its number as soon as it has started; before that it has forked nothing.
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._process.join()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.close()
        self.connection.close()

    def stacks(self) -> str:
        """The stacks of its threads, with their frames in C++ where this process may look."""
        command = [_PY_SPY, "dump", "--native", "--pid", str(self.pid)]
        try:
            looked = subprocess.run(command, capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return looked.stdout or looked.stderr

    def write_stacks(self) -> None:
        """Makes it write the stacks of its threads to its log, those of Python alone."""
        with suppress(ProcessLookupError):
            self.signal(signal.SIGUSR1)

    def said(self) -> str:
        """The end of what it wrote."""
        return self.log.read_text(errors="replace")[-6000:] if self.log.exists() else ""


class Job:
    """A function that runs on some ranks."""

    def __init__(self, ranks: Ranks, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.ranks = ranks
        self._outcomes: dict[int, Outcome] = {}
        self._heard: dict[int, list[Any]] = {p.index: [] for p in ranks.processes}
        name = FunctionName.of(function)
        for process in ranks.processes:
            order = worker.Order(name, args, process.index, ranks.size)
            with suppress(OSError):  # dead: its outcome will say so
                process.connection.send(order)

    def say(self, rank: int, value: Any = None) -> None:
        """What Rank.listen() returns there."""
        self.ranks.processes[rank].connection.send(worker.Said(value))

    def hear(self, rank: int) -> Any:
        """The next thing that a rank told with Rank.say()."""
        deadline = time.monotonic() + GUARD_SECONDS
        while not self._heard[rank]:
            if rank in self._outcomes:
                self._fail(f"rank {rank} has ended without a word")
            if not self._advance(deadline):
                self._fail(f"nothing heard from rank {rank} in {GUARD_SECONDS} s")
        return self._heard[rank].pop(0)

    def ended(self) -> set[int]:
        """The ranks on which the function has ended, however."""
        while self._advance(0):
            pass
        return set(self._outcomes)

    def outcomes(self, guard: float = GUARD_SECONDS) -> list[Outcome]:
        """Waits until the function has ended on every rank, however."""
        deadline = time.monotonic() + guard
        while len(self._outcomes) < self.ranks.size:
            if not self._advance(deadline):
                self._fail(_no_end(guard))
        return [self._outcomes[r] for r in range(self.ranks.size)]

    def results(self, guard: float = GUARD_SECONDS) -> list[Any]:
        """What the function returned on each rank. Raises RanksFailed unless it did on all."""
        deadline = time.monotonic() + guard
        while len(self._outcomes) < self.ranks.size:
            if self._has_failure():
                deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
            if not self._advance(deadline):
                self._fail("the others have not ended" if self._has_failure() else _no_end(guard))
        if self._has_failure():
            self._fail("not every rank returned")
        return [self._outcomes[r].value for r in range(self.ranks.size)]  # type: ignore[union-attr]

    def _has_failure(self) -> bool:
        return not all(isinstance(outcome, Returned) for outcome in self._outcomes.values())

    def _advance(self, deadline: float) -> bool:
        """Takes news from the ranks, waiting for them if there are none; False at the deadline."""
        running = [p for p in self.ranks.processes if p.index not in self._outcomes]
        if not running:
            return False
        sources: list[Any] = [p.connection for p in running] + [p.sentinel for p in running]
        ready = wait(sources, max(0.0, deadline - time.monotonic()))
        for process in running:
            if process.connection in ready:
                self._take(process)
            elif process.sentinel in ready and not process.connection.poll():
                self._outcomes[process.index] = Died(process.exit_code or 0)
        return bool(ready)

    def _take(self, process: Process) -> None:
        try:
            message = process.connection.recv()
        except (EOFError, OSError):
            wait([process.sentinel], GUARD_SECONDS)  # a busy machine takes its time to end it
            self._outcomes[process.index] = Died(process.exit_code or 0)
            return
        if isinstance(message, worker.Said):
            self._heard[process.index].append(message.value)
        elif isinstance(message, worker.Done):
            self._outcomes[process.index] = Returned(message.value)
        else:
            self._outcomes[process.index] = Raised(message.error, message.traceback)

    def _fail(self, why: str) -> None:
        """Reports all ranks, with the stacks of those that still run, and ends the processes."""
        running = [p for p in self.ranks.processes if p.index not in self._outcomes]
        stacks = {process.index: process.stacks() for process in running}
        for process in running:
            process.write_stacks()
        # The dump is written by a signal handler; nothing tells when it is complete.
        wait([p.sentinel for p in running], 0.5)
        parts = [why]
        others = [p for p in self.ranks.processes if p not in running]
        for process in running + others:  # what is at the end may be cut off
            outcome = self._outcomes.get(process.index)
            state = "still running" if outcome is None else str(outcome)
            if isinstance(outcome, Raised):
                state = outcome.traceback
            parts.append(f"---- rank {process.index} (pid {process.pid}): {state}")
            if process.index in stacks:
                parts.append(stacks[process.index])
            if not isinstance(outcome, Returned) and process.said():
                parts.append(f"---- rank {process.index} wrote:\n{process.said()}")
        self.ranks.pool.end()
        raise RanksFailed("\n".join(parts))


def _no_end(guard: float) -> str:
    return f"no end after {guard} s"


class Ranks:
    """The first `size` processes of a pool."""

    def __init__(self, pool: Pool, size: int) -> None:
        self.pool = pool
        self.size = size
        self.processes = pool.processes[:size]

    def start(self, function: Callable[..., Any], *args: Any) -> Job:
        """Runs `function(rank, *args)`, a module-level function, on every rank."""
        return Job(self, function, args)

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """As `start`; returns the results by rank. Raises RanksFailed unless all return."""
        return self.start(function, *args).results()


class Pool:
    """Processes that serve worlds of any size. After a failure they are replaced."""

    def __init__(self) -> None:
        self.processes: list[Process] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def ranks(self, size: int) -> Ranks:
        # Its exit code may still be on its way.
        if any(state_of(process.pid) in "ZX" for process in self.processes):
            self.end()  # communicators of the others are of no use any more
        if self._folder is None:
            start_server()
            self._folder = tempfile.TemporaryDirectory(prefix="torchcomms-test-")
        while len(self.processes) < size:
            self.processes.append(Process(len(self.processes), Path(self._folder.name)))
        return Ranks(self, size)

    def end(self) -> None:
        """Ends all processes and all that they have forked; `ranks` starts new ones."""
        for process in self.processes:
            process.end()
        self.processes.clear()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def close(self) -> None:
        """As `end`, but lets them leave in an orderly way first."""
        for process in self.processes:
            with suppress(OSError):
                process.connection.send(None)
        deadline = time.monotonic() + GRACE_SECONDS
        for process in self.processes:
            wait([process.sentinel], max(0.0, deadline - time.monotonic()))
        self.end()


@contextmanager
def open_pool() -> Iterator[Pool]:
    """One that has ended when its processes are no longer needed, whatever happens."""
    pool = Pool()
    atexit.register(pool.end)  # before multiprocessing's own, which would wait for the processes
    try:
        yield pool
    finally:
        pool.close()
        atexit.unregister(pool.end)
