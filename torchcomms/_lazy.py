"""Backends "<name>-lazy": communicators of backend <name>, made when they are first needed.

Collectives and batches have one communicator, made by the first of them. Sends and receives have
one for each peer, made by the first message in either direction, so that those to different peers
do not wait for one another; each is made on a thread of its own, so that an asynchronous call never
waits for the peer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from torchcomms._comms import (
    CommOptions,
    TorchComm,
    TorchCommBackend,
    _choose_device,
    _is_backend_registered,
    new_comm,
    register_backend,
)

SUFFIX = "-lazy"


class _Issued:
    """A message whose communicator is being made."""

    def __init__(self, work: Future[Any]) -> None:
        self._work = work

    def is_completed(self) -> bool:
        if not self._work.done():
            return False
        return self._work.exception() is not None or bool(self._work.result().is_completed())

    def wait(self) -> None:
        self._work.result().wait()


class _Pair:
    """The communicator with one peer."""

    def __init__(self, make: Callable[[], TorchComm]) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="torchcomms-lazy")
        self._comm = self._thread.submit(make)
        self._queued = 0
        self._lock = threading.Lock()

    def issue(self, message: Callable[[TorchComm], Any], async_op: bool) -> Any:
        with self._lock:
            ready = self._comm.done() and self._queued == 0
            if not ready:
                self._queued += 1
        if ready:
            return message(self._comm.result())
        issued = _Issued(self._thread.submit(self._issue, message))
        if not async_op:
            issued.wait()
        return issued

    def _issue(self, message: Callable[[TorchComm], Any]) -> Any:
        try:
            return message(self._comm.result())
        finally:
            with self._lock:
                self._queued -= 1

    def finalize(self) -> None:
        self._thread.shutdown()
        if self._comm.exception() is None:
            self._comm.result().finalize()

    def abort(self) -> None:
        if self._comm.done() and self._comm.exception() is None:
            self._comm.result().abort()


class LazyBackend(TorchCommBackend):
    """What `backend` names, on demand."""

    backend = ""

    def init(self, device: torch.device, name: str, options: CommOptions) -> None:
        assert options.rank is not None
        assert options.size is not None
        # Now, and by this rank: threads and pairs would choose otherwise. A fake one takes any.
        fake = self.backend == "fake"
        self._device = device if fake else _choose_device(device, options.rank)
        self._name, self._options = name, options
        self._rank, self._size = options.rank, options.size
        self._whole: TorchComm | None = None
        self._pairs: dict[int, _Pair] = {}
        self._aborted = False

    def get_rank(self) -> int:
        return self._rank

    def get_size(self) -> int:
        return self._size

    def get_comm_name(self) -> str:
        return self._name

    def get_backend_name(self) -> str:
        return self.backend + SUFFIX

    def _make(self, name: str, rank: int, size: int) -> TorchComm:
        import torch.distributed as dist

        options = CommOptions()
        options.rank, options.size = rank, size
        store = self._options.store
        return new_comm(
            self.backend,
            self._device,
            f"{self._name}/{name}",
            options=options,
            store=None if store is None else dist.PrefixStore(f"lazy/{name}", store),
            timeout=self._options.timeout,
            hints=self._options.hints,
            abort_process_on_timeout_or_error=self._options.abort_process_on_timeout_or_error,
        )

    def _collectives(self) -> TorchComm:
        if self._whole is None:
            self._whole = self._make("all", self._rank, self._size)
        return self._whole

    def _pair(self, peer: int) -> _Pair:
        if peer not in self._pairs:
            low, high = min(peer, self._rank), max(peer, self._rank)
            size = 1 if low == high else 2
            self._pairs[peer] = _Pair(
                lambda: self._make(f"{low}-{high}", int(self._rank > low), size)
            )
        return self._pairs[peer]

    def send(self, tensor: torch.Tensor, dst: int, async_op: bool, *, options: Any = None) -> Any:
        other = int(dst > self._rank)
        return self._pair(dst).issue(
            lambda comm: comm.send(tensor, other, async_op, options=options), async_op
        )

    def recv(self, tensor: torch.Tensor, src: int, async_op: bool, *, options: Any = None) -> Any:
        other = int(src > self._rank)
        return self._pair(src).issue(
            lambda comm: comm.recv(tensor, other, async_op, options=options), async_op
        )

    def batch_op_issue(self, ops: list[Any], async_op: bool, *, options: Any = None) -> Any:
        batch = self._collectives().batch_op_create()
        batch.ops = ops
        return batch.issue(async_op, options)

    def split(self, ranks: list[int], name: str, *, options: CommOptions) -> Any:
        import torch.distributed as dist

        number = self._splits = getattr(self, "_splits", -1) + 1
        if not ranks:
            return None
        child = type(self)()
        options.rank, options.size = ranks.index(self._rank), len(ranks)
        if self._options.store is not None:
            prefix = f"split/{number}/{min(ranks)}"
            options.store = dist.PrefixStore(prefix, self._options.store)
        child.init(self._device, name, options)
        return child

    def finalize(self) -> None:
        for pair in self._pairs.values():
            pair.finalize()
        if self._whole is not None:
            self._whole.finalize()

    def abort(self) -> None:
        self._aborted = True
        for pair in self._pairs.values():
            pair.abort()
        if self._whole is not None:
            self._whole.abort()

    def is_aborted(self) -> bool:
        return self._aborted or (self._whole is not None and self._whole.is_aborted())


def _collective(name: str) -> Any:
    def method(self: LazyBackend, *args: Any, options: Any = None) -> Any:
        return getattr(self._collectives(), name)(*args, options=options)

    method.__name__ = name
    return method


for _name in (
    "broadcast",
    "all_reduce",
    "reduce",
    "all_gather",
    "all_gather_v",
    "all_gather_single",
    "reduce_scatter",
    "reduce_scatter_v",
    "reduce_scatter_single",
    "all_to_all_single",
    "all_to_all_v_single",
    "all_to_all",
    "barrier",
    "scatter",
    "gather",
    "gather_single",
):
    setattr(LazyBackend, _name, _collective(_name))


def register(backend: str) -> None:
    """Makes "<backend>-lazy" known; <backend> is."""
    name = backend + SUFFIX
    if not _is_backend_registered(name):
        register_backend(name, type(f"Lazy_{backend}", (LazyBackend,), {"backend": backend}))
