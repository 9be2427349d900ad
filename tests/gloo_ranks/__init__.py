"""Processes that tests of backend gloo run their cases on, started once."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch.distributed as dist

#: A hang guard, far above what any case takes.
GUARD_SECONDS = 120


class Ranks:
    """`size` processes; each runs what `run` is given and sends back what it returns."""

    def __init__(self, size: int) -> None:
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.connections: list[Connection] = []
        # Not by `-m`, which would put the working directory first on its search path.
        worker = [sys.executable, str(Path(__file__).with_name("worker.py"))]
        for _ in range(size):
            ours, theirs = socket.socketpair()
            self.processes.append(
                subprocess.Popen(
                    [*worker, str(theirs.fileno()), str(self.store.port)],
                    pass_fds=[theirs.fileno()],
                    env=os.environ | {"PYTHONPATH": os.pathsep.join(_search_path())},
                )
            )
            theirs.close()
            self.connections.append(Connection(ours.detach()))

    def run(
        self,
        case: Callable[..., Any],
        *args: Any,
        ranks: Sequence[int] = (),
        dying: Mapping[int, int] = MappingProxyType({}),
    ) -> list[Any]:
        """`case(rank, size, *args)` on processes `ranks` (all, if empty); what they return.

        Fails if a process raises; the message has every traceback. `dying`: ranks that must end,
        each by this signal.
        """
        used = list(ranks) or list(range(len(self.processes)))
        for rank, process in enumerate(used):
            self.connections[process].send((case, rank, len(used), args))
        results, failures = [], []
        for rank, process in enumerate(used):
            if not self.connections[process].poll(GUARD_SECONDS):
                failures.append(f"rank {rank} hangs")
                self.processes[process].kill()
                continue
            if rank in dying:
                with pytest.raises(EOFError):
                    self.connections[process].recv()
                assert self.processes[process].wait(GUARD_SECONDS) == -dying[rank]
                continue
            ok, result = self.connections[process].recv()
            (results if ok else failures).append(result if ok else f"rank {rank}:\n{result}")
        assert not failures, "\n".join(failures)
        return results

    def close(self) -> None:
        for connection in self.connections:
            connection.close()  # the worker ends
        for process in self.processes:
            try:
                process.wait(GUARD_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _search_path() -> list[str]:
    return [str(Path(__file__).parents[1]), *(path for path in sys.path if path)]
