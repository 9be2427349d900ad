"""The process of a rank: takes functions from the test's process and runs them."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import torchcomms
from harness import devices
from harness.functions import FunctionName

PR_SET_PDEATHSIG = 1
# Shorter than the guards of the test's process: the engine tells first what it waits for.
TIMEOUT = timedelta(seconds=30)


@dataclass(frozen=True)
class Order:
    """Run `function` as rank `rank` of the first `size` processes."""

    function: FunctionName
    args: tuple[Any, ...]
    rank: int
    size: int


@dataclass(frozen=True)
class Said:
    value: Any


@dataclass(frozen=True)
class Done:
    value: Any


@dataclass(frozen=True)
class Failed:
    error: str
    traceback: str


class Rank:
    """What a function that runs on a rank has at hand."""

    def __init__(self, rank: int, size: int, process: Worker) -> None:
        self.rank = rank
        self.size = size
        self._process = process

    def comm(self, backend: str = "ctran", hosts: int = 1) -> torchcomms.TorchComm:
        """The communicator of this many ranks on that backend; stays from case to case.

        With several `hosts` the ranks count as on so many, the first ones on the first.
        """
        key = (backend, self.size, hosts)
        made = self._process.comms
        if key not in made:
            name, hints = f"{backend}-{self.size}", {}
            if hosts > 1:
                name, hints = f"{name}-{hosts}", {"ctran::host": f"host{self.host(hosts)}"}
            made[key] = self.new_comm(backend, name, hints=hints)
        return made[key]

    def host(self, hosts: int, rank: int | None = None) -> int:
        """The host of a rank, or of this one, in such a communicator."""
        return (self.rank if rank is None else rank) * hosts // self.size

    def new_comm(self, backend: str, name: str, **options: Any) -> torchcomms.TorchComm:
        """A new communicator of all ranks of this case."""
        options.setdefault("abort_process_on_timeout_or_error", False)
        options.setdefault("timeout", TIMEOUT)
        given = torchcomms.CommOptions()
        given.rank, given.size = self.rank, self.size
        store = self.store(name)
        if backend == devices.CTRAN_GPU and not self.gpu().is_real:
            options["hints"] = {**options.get("hints", {}), "ctran::stand_in": "1"}
        name_of = {devices.CTRAN_GPU: "ctran", devices.GLOO_STAGED: "gloo"}
        return torchcomms.new_comm(
            name_of.get(backend, backend),
            self.device(backend),
            name,
            options=given,
            store=store,
            **options,
        )

    def device(self, backend: str) -> torch.device:
        """Where the tensors of that backend lie."""
        if backend == devices.GLOO_STAGED:
            return devices.any_device(self.rank)
        if backend == devices.XCCL:
            return devices.xccl_device()
        if backend not in devices.ON_STREAMS:
            return torch.device("cpu")
        return devices.of(self.rank, self._process.folder).torch_device

    def gpu(self) -> devices.Device:
        return devices.of(self.rank, self._process.folder)

    def synchronize(self, backend: str) -> None:
        """Waits until the device has done what has been asked of it."""
        if backend in devices.ON_STREAMS:
            self.gpu().synchronize()

    def store(self, prefix: str) -> dist.Store:
        """The store that all ranks share, with a prefix of its own for this world size."""
        return dist.PrefixStore(f"{self.size}/{prefix}", self._process.store())

    def say(self, value: Any) -> None:
        """Tells the test, which hears it with Job.hear()."""
        self._process.connection.send(Said(value))

    def listen(self) -> Any:
        """Waits for what the test says with Job.say()."""
        return self._process.connection.recv().value


class Worker:
    def __init__(self, connection: Connection, store_file: str) -> None:
        self.connection = connection
        self.comms: dict[tuple[str, int, int], torchcomms.TorchComm] = {}
        self._store_file = store_file
        self.folder = Path(store_file).parent
        self._store: dist.Store | None = None

    def store(self) -> dist.Store:
        if self._store is None:
            self._store = dist.FileStore(self._store_file, -1)
        return self._store

    def serve(self) -> None:
        while True:
            try:
                order = self.connection.recv()
            except (EOFError, OSError):
                return  # the test's process has ended
            if order is None:
                return
            answer = self._answer(order)
            try:
                self.connection.send(answer)
            except OSError:
                return

    def _answer(self, order: Order) -> Done | Failed:
        try:
            function: Callable[..., Any] = order.function.find()
            return Done(function(Rank(order.rank, order.size, self), *order.args))
        except BaseException as error:
            return Failed(repr(error), traceback.format_exc())


def main(connection: Connection, log: str, store_file: str) -> None:
    """Entry point of the process."""
    # A group of its own: what it forks can be found and ended with it, and Ctrl-C is the test's.
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    faulthandler.enable(file=2)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    worker = Worker(connection, store_file)
    worker.serve()
    worker.comms.clear()
