"""Whole interpreters as ranks: for what happens from the start of a program to its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from harness.ports import free_port

COMMAND = str(Path(sys.executable).with_name("torchcomms"))
"""As pip installs it."""

AS_COMMAND = """
import sys
from torchcomms.cli import main
sys.exit(main())
"""
"""The same for a fork, with its arguments."""

GUARD_SECONDS = 240.0


def python_path(first: str | Path) -> str:
    """A PYTHONPATH in which a folder comes before those of this process's."""
    return os.pathsep.join(filter(None, [str(first), os.environ.get("PYTHONPATH")]))


@dataclass(frozen=True)
class Ended:
    """How a program ended; `code` is minus the signal if one killed it."""

    code: int
    out: str
    err: str


class Program:
    """A Python program in an interpreter of its own."""

    def __init__(self, source: str, folder: Path, arguments: Sequence[str] = (), **env: str):
        self._file = folder / f"program-{len(list(folder.iterdir()))}.py"
        self._file.write_text(source)
        command = [sys.executable, str(self._file), *arguments]
        self.process = start(command, folder, env)

    def end(self) -> Ended:
        return finish(self.process)


def start(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> subprocess.Popen[str]:
    """Starts a command in a process group of its own, with nothing of an outer job around it."""
    foreign = ("TORCHCOMM", "MASTER_", "TORCHELASTIC", "OMPI_", "PMI", "SLURM_")
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(foreign) and name not in names
    }
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**clean, "OMP_NUM_THREADS": "1", **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], guard: float = GUARD_SECONDS) -> Ended:
    """Waits for its end; kills it and all that it started when that takes too long."""
    try:
        # Closes what a program may be reading, so that it goes on.
        out, err = process.communicate(timeout=guard)
    except subprocess.TimeoutExpired:
        out, err = _stop(process)
        raise AssertionError(f"no end after {guard} s\n{out}\n{err}") from None
    finally:
        kill(process)
    return Ended(process.returncode, out, err)


def _stop(process: subprocess.Popen[str]) -> tuple[str, str]:
    process.terminate()  # torchrun ends its processes, which are not of its group
    with suppress(subprocess.TimeoutExpired):
        return process.communicate(timeout=10)
    kill(process)
    return process.communicate()


def kill(process: subprocess.Popen[str]) -> None:
    """With everything in its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def run_ranks(source: str, world: int, folder: Path, **env: str) -> list[Ended]:
    """Runs a program as every rank of a world: its arguments are rank, size, file of a store."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        programs = [
            Program(source, Path(name), [str(rank), str(world), f"{name}/store"], **env)
            for rank in range(world)
        ]
        try:
            return [program.end() for program in programs]
        finally:
            for program in programs:
                kill(program.process)


@dataclass(frozen=True)
class Fork:
    """A program for `run_forks`."""

    source: str
    arguments: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)


def forks_of_ranks(source: str, world: int, folder: Path, **env: str) -> list[Fork]:
    """A program as every rank of a world, as `run_ranks` runs it."""
    store = f"{tempfile.mkdtemp(dir=folder)}/store"
    return [Fork(source, [str(rank), str(world), store], env) for rank in range(world)]


def forks_of_launcher(
    source: str, size: int, arguments: Sequence[str] = (), **env: str
) -> list[Fork]:
    """A program as every rank of a launcher on one host."""
    world = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    world |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **env}
    return [
        Fork(source, arguments, {**world, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(size)
    ]


def run_forks(jobs: Mapping[str, Sequence[Fork]], folder: Path) -> dict[str, list[Ended]]:
    """How the programs of each job end, which run together; one job runs after the other.

    All are forks of one interpreter that has imported torchcomms: a start takes seconds. Variables
    are set in the fork, which is too late for those that are read where torch is imported.
    """
    with tempfile.TemporaryDirectory(dir=folder) as name:
        written = {
            job: [(one.source, one.arguments, dict(one.env)) for one in forks]
            for job, forks in jobs.items()
        }
        Path(name, "jobs.json").write_text(json.dumps(written))
        command = [sys.executable, str(Path(__file__).with_name("forks.py")), name]
        ended = finish(start(command, folder, {}))
        assert (ended.code, ended.err) == (0, ""), ended
        return {
            job: [
                Ended(
                    code,
                    Path(name, f"{number}.{rank}.out").read_text(),
                    Path(name, f"{number}.{rank}.err").read_text(),
                )
                for rank, code in enumerate(json.loads(Path(name, f"{number}.codes").read_text()))
            ]
            for number, job in enumerate(jobs)
        }


def torchrun(file: Path, processes: int, folder: Path, guard: float = GUARD_SECONDS) -> Ended:
    """Runs a program under torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={processes}", str(file)]
    return finish(start(command, folder, {}), guard)


@contextmanager
def stranger() -> Iterator[int]:
    """The id of a process that has nothing to do with torchcomms."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@contextmanager
def served(of: Sequence[str], *options: str) -> Iterator[str]:
    """The address at which `torchcomms analyze --serve` serves a job; ends with exit code 0."""
    command = [COMMAND, "analyze", *of, "--serve", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=GUARD_SECONDS) == 0
        finally:
            process.kill()
