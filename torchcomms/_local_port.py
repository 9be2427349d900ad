"""A port that one process of a job on this host tells the others, without any variable saying so.

All processes that one launcher started on one host have it among their parents. A file named after
it (its process id, when it started, and the boot it belongs to: together never used twice) carries
the port. It lies in a directory that only this user can enter.
"""

import json
import os
import stat
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from torchcomms._errors import CommError, CommTimeoutError, hinted

#: Names of processes that are parents of all ranks of a job on a host.
_LAUNCHERS = frozenset(
    {
        "hydra_pmi_proxy",
        "mpiexec",
        "mpiexec.hydra",
        "mpirun",
        "orted",
        "orterun",
        "palsd",
        "pmi_proxy",
        "prted",
        "prterun",
        "slurmstepd",
    }
)
_PAUSE_SECONDS = 0.02


@dataclass(frozen=True)
class _Process:
    pid: int
    name: str
    parent: int
    started: str

    @staticmethod
    def read(pid: int) -> "_Process | None":
        try:
            text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return None
        # The name is in parentheses and may contain any bytes, a parenthesis too.
        name = text[text.index("(") + 1 : text.rindex(")")]
        fields = text[text.rindex(")") + 1 :].split()
        return _Process(pid, name, parent=int(fields[1]), started=fields[19])


def _launcher() -> _Process | None:
    """The nearest parent that is a launcher."""
    pid = os.getppid()
    while pid > 0:
        process = _Process.read(pid)
        if process is None or process.name in _LAUNCHERS:
            return process
        pid = process.parent
    return None


@dataclass(frozen=True)
class Notice:
    """The file of one job."""

    path: Path

    @staticmethod
    def of_launcher() -> "Notice | None":
        """Of the launcher of this process; None if no parent of it is one."""
        launcher = _launcher()
        if launcher is None:
            return None
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return Notice(_private_directory() / f"{boot}-{launcher.pid}-{launcher.started}.json")

    def publish(self, port: int) -> None:
        """Says the port; replaces what an earlier rank 0 of the job has said."""
        me = _Process.read(os.getpid())
        assert me is not None  # /proc is there, or there would be no launcher
        draft = self.path.with_suffix(f".{me.pid}")
        draft.write_text(json.dumps({"port": port, "pid": me.pid, "started": me.started}))
        draft.replace(self.path)  # readers see all of it, or nothing

    def remove(self) -> None:
        """Takes the file away, unless another process has published since."""
        said = self._read()
        if said is not None and said["pid"] == os.getpid():
            self.path.unlink(missing_ok=True)

    def wait(self, timeout: timedelta) -> int:
        """The port that a living process has published.

        Raises:
            CommTimeoutError: none has.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        while True:
            said = self._read()
            if said is not None:
                process = _Process.read(int(said["pid"]))
                if process is not None and process.started == said["started"]:
                    return int(said["port"])
            if time.monotonic() >= deadline:
                raise hinted(
                    CommTimeoutError,
                    f"Rank 0 has not said at which port it serves the store (in {self.path})",
                    ranks=[0],
                    hint="do all ranks run on this host, under one launcher? Else set MASTER_ADDR "
                    "and MASTER_PORT",
                )
            time.sleep(_PAUSE_SECONDS)

    def _read(self) -> dict[str, str | int] | None:
        try:
            said: dict[str, str | int] = json.loads(self.path.read_text())
        except FileNotFoundError:
            return None
        return said


def _private_directory() -> Path:
    """A directory of this user, that nobody else can read or write."""
    path = Path(tempfile.gettempdir()) / f"torchcomms-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()  # it may have been there: whose is it?
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise hinted(
            CommError,
            f"{path} must be a directory of user {os.getuid()} with mode 0700",
            hint="remove it, or set MASTER_ADDR and MASTER_PORT",
        )
    return path
