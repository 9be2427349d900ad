"""How the ranks of each library are started, and how they are told what to time.

Every rank of every library connects to a Unix socket of ours and then sleeps until it is told to
time something (the protocol is in cpp/control.h), so that all of them can be up at once and take
turns on the same CPUs. Names of libraries:

- ``ctran-bench``: the engine from C++; ``ctran-bench+tcp``: each rank as on a host of its own
- ``sockets``: a bare TCP socket between two ranks, from C++
- ``openmpi``, ``mpich``, ``impi``: an MPI from C++, through the same loop
- ``c10d/gloo``: torch.distributed's own Gloo from Python
- ``torchcomms/NAME``: a backend of torchcomms from Python
- either of the last two with ``+async``: async_op=True and wait() at once
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from rich.console import Console

BENCHMARKS = Path(__file__).resolve().parent.parent
REPOSITORY = BENCHMARKS.parent

CTRAN_BENCH_OPTIONS: dict[str, list[str]] = {
    "ctran-bench": [],
    "ctran-bench+tcp": ["--hosts", "{}"],
    "sockets": ["--sockets"],
}
"""What runs in ctran-bench, and how it is told to; {} is the number of ranks."""

MPIS = {"openmpi": ["openmpi"], "mpich": ["mpich"], "impi": ["impi-rt", "impi-devel"]}
"""The MPIs, and the Python packages that bring library, launcher and headers."""

MPI_ROOT = Path(os.environ.get("CTRAN_BENCH_MPI_ROOT", REPOSITORY / ".venv-mpi"))
"""One environment per MPI, since their files have the same names."""


class Unavailable(Exception):
    """The library is not here; the message says what would bring it."""


def allowed_cpus() -> list[int]:
    """The CPUs this process may use, one of each core before any second hardware thread."""
    allowed = sorted(os.sched_getaffinity(0))

    def is_second(cpu: int) -> bool:
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        if not siblings.exists():
            return False
        leader = int(siblings.read_text().replace("-", ",").split(",")[0])
        return leader != cpu and leader in allowed

    return sorted(allowed, key=lambda cpu: (is_second(cpu), cpu))


def placement(pin: str, ranks: int) -> str:
    """``auto`` as a list of CPUs, or "none" when there are fewer than ranks."""
    if pin != "auto":
        return pin
    cpus = allowed_cpus()[:ranks]
    return ",".join(map(str, cpus)) if len(cpus) == ranks else "none"


def install_mpis() -> None:
    """Creates an environment per MPI with pip; no administrator needed."""
    for name, packages in MPIS.items():
        home = MPI_ROOT / name
        if not (home / "bin" / "mpirun").exists():
            subprocess.run([sys.executable, "-m", "venv", home], check=True)
            subprocess.run([home / "bin" / "pip", "install", *packages], check=True)


def ctran_bench_program() -> Path:
    """The newest build of ctran-bench."""
    named = os.environ.get("CTRAN_BENCH")
    builds = [Path(named)] if named else [*REPOSITORY.glob("build*/**/ctran-bench")]
    builds = [build for build in builds if build.is_file()]
    if not builds:
        raise Unavailable("ctran-bench is not built: cmake -B build && cmake --build build")
    return max(builds, key=lambda build: build.stat().st_mtime)


def mpi_program(name: str) -> Path:
    """Compiles mpi_bench against this MPI when it is not up to date."""
    home = MPI_ROOT / name
    if not (home / "bin" / "mpirun").exists():
        raise Unavailable(f"{name} is not in {home}: python benchmarks/compare_cpu.py --install")
    program = home / "mpi_bench"
    source = BENCHMARKS / "mpi" / "mpi_bench.cpp"
    inputs = [source, *(BENCHMARKS / "cpp").iterdir()]
    if not program.exists() or program.stat().st_mtime < max(p.stat().st_mtime for p in inputs):
        compiler = os.environ.get("CXX") or shutil.which("c++") or "g++"
        flags = [
            "-std=c++20",
            "-O2",
            f"-I{REPOSITORY}",
            f"-I{home}/include",
            f"-Wl,-rpath,{home}/lib",
        ]
        sources = [source, BENCHMARKS / "cpp" / "control.cpp", home / "lib" / "libmpi.so"]
        subprocess.run([compiler, *flags, *sources, "-o", program], check=True)
    return program


def mpi_command(name: str, ranks: int, control: Path, cpus: str) -> list[str]:
    """Ranks bind themselves, so that all libraries do it alike; the launchers must not."""
    program = str(mpi_program(name))
    options = {
        "openmpi": ["--allow-run-as-root", "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"],
        "mpich": ["-bind-to", "none"],
        "impi": [],
    }[name]
    return ["mpirun", *options, "-n", str(ranks), program, str(control), cpus]


def mpi_environment(name: str, ranks: int) -> dict[str, str]:
    """Settings with which the MPIs are at their best here.

    With more ranks than CPUs, Open MPI yields by itself but not when told not to bind, MPICH is
    70 times faster when its polling sleeps, and Intel MPI needs nothing.
    """
    environment = {"PATH": f"{MPI_ROOT / name / 'bin'}:{os.environ['PATH']}", "I_MPI_PIN": "0"}
    environment |= {"I_MPI_FABRICS": "shm", "HYDRA_LAUNCHER": "fork"}
    if ranks > len(os.sched_getaffinity(0)):
        environment |= {
            "OMPI_MCA_mpi_yield_when_idle": "1",
            "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
            "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "100",
        }
    return environment


class Channel:
    """Lines to and from one rank."""

    def __init__(self, connection: socket.socket, limit: float) -> None:
        connection.settimeout(limit)
        self._connection = connection
        self._lines = connection.makefile("rb")

    def send(self, line: str) -> None:
        """Nothing happens if the rank is gone: `receive` will tell."""
        with contextlib.suppress(OSError):
            self._connection.sendall(f"{line}\n".encode())

    def receive(self) -> str:
        """The next line, nothing if the rank is gone. Raises RuntimeError after too long."""
        try:
            return self._lines.readline().decode().strip()
        except TimeoutError:
            limit = self._connection.gettimeout()
            raise RuntimeError(f"no answer from a rank for {limit:.0f} s") from None
        except OSError:
            return ""

    def close(self) -> None:
        self._lines.close()
        self._connection.close()


class Library:
    """A running library: its ranks, and a line to each of them."""

    def __init__(self, name: str, ranks: int, cpus: str, limit: float) -> None:
        """Starts the ranks and waits until all have said hello.

        Raises Unavailable, or RuntimeError with what they printed when they do not come up within
        `limit` seconds; the same limit holds for every later answer.
        """
        self.name = name
        self.ranks = ranks
        self._cleanup = contextlib.ExitStack()
        scratch = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        self._log: IO[bytes] = self._cleanup.enter_context((scratch / "log").open("w+b"))
        control = scratch / "control"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._cleanup.callback(self.kill)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(control))
            listener.listen(ranks)
            listener.settimeout(1)
            self._start(scratch, control, cpus)
            self._channels = self._greet(listener, limit)

    def time(self, operation: str, nbytes: int, warmup: int, iterations: int) -> float:
        """Seconds per call of the slowest rank. Raises RuntimeError with the rank's message."""
        return self._ask(f"time {operation} {nbytes} {warmup} {iterations}")

    def check(self, operation: str, nbytes: int) -> None:
        """Raises RuntimeError when a result is wrong."""
        self._ask(f"check {operation} {nbytes}")

    def kill(self) -> None:
        """Ends the ranks, whatever they do."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _ask(self, command: str) -> float:
        for channel in self._channels:
            channel.send(command)
        replies = [channel.receive() for channel in self._channels]
        for rank, reply in enumerate(replies):
            if not reply.startswith("ok "):
                raise RuntimeError(reply.removeprefix("error ") or self._died(rank))
        return max(float(reply.split()[1]) for reply in replies)

    def close(self) -> None:
        """Lets the ranks end; ends those that do not."""
        for channel in self._channels:
            channel.send("quit")
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        self._cleanup.close()

    def _start(self, scratch: Path, control: Path, cpus: str) -> None:
        environment = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        if self.name in CTRAN_BENCH_OPTIONS:
            program = str(ctran_bench_program())
            options = ["--ranks", str(self.ranks), "--control", str(control), "--pin", cpus]
            special = [word.format(self.ranks) for word in CTRAN_BENCH_OPTIONS[self.name]]
            commands = [[program, *options, *special]]
            environment["TMPDIR"] = str(scratch)
        elif self.name in MPIS:
            commands = [mpi_command(self.name, self.ranks, control, cpus)]
            environment |= mpi_environment(self.name, self.ranks)
        else:
            python = [sys.executable, "-m", "side_by_side.torch_rank"]
            world = [str(self.ranks), str(control), cpus, str(scratch / "store")]
            commands = [[*python, self.name, str(rank), *world] for rank in range(self.ranks)]
        for command in commands:
            self._processes.append(
                subprocess.Popen(
                    command,
                    cwd=BENCHMARKS,
                    env={**os.environ, **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=self._log,
                    start_new_session=True,
                )
            )

    def _greet(self, listener: socket.socket, limit: float) -> list[Channel]:
        channels: dict[int, Channel] = {}
        waited = 0
        while len(channels) < self.ranks:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                waited += 1
                ended = any(process.poll() is not None for process in self._processes)
                if ended or waited > limit:
                    self._give_up("did not come up")
                continue
            channel = Channel(connection, limit)
            self._cleanup.callback(channel.close)
            hello = channel.receive()
            if not hello.startswith("hello "):
                self._give_up("ended at once")
            channels[int(hello.split()[1])] = channel
        return [channels[rank] for rank in range(self.ranks)]

    def _give_up(self, what: str) -> None:
        message = f"{self.name} {what}:\n{self._output()}"
        self._cleanup.close()
        raise RuntimeError(message)

    def _died(self, rank: int) -> str:
        return f"rank {rank} died:\n{self._output()}".strip()

    def _output(self) -> str:
        """What the ranks printed, once they ended or had a second for it."""
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)
        self._log.flush()
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-2000:]


def start_all(
    names: Sequence[str], ranks: int, cpus: str, limit: float, console: Console
) -> tuple[list[Library], dict[str, str]]:
    """Starts the libraries; those that cannot are in the second result with the reason."""
    started: list[Library] = []
    missing: dict[str, str] = {}
    for name in names:
        try:
            with console.status(f"starting {name}"):
                started.append(Library(name, ranks, cpus, limit))
        except (Unavailable, RuntimeError, subprocess.CalledProcessError) as error:
            missing[name] = str(error)
    return started, missing
