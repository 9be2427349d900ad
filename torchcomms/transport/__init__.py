"""Transfers between the memory of two processes over RDMA, without copies.

    memory = RdmaMemory(tensor)
    transport = RdmaTransport("cpu")
    send_to_peer(transport.bind(), memory.to_remote_buffer())
    url, remote = receive_from_peer()
    transport.connect(url)
    transport.write(memory.to_view(), remote, notify=True).result()
    transport.wait_for_write().result()

Both ends bind, tell each other their URLs in a way of their own, and connect. Futures are those of
`concurrent.futures`; an error is a `torchcomms.CommError`. In a callback of one, result() and
exception() raise for a transfer that has not ended, on whichever thread it runs, as they do in a
forked child for one of its parent's.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta

import torch

from torchcomms import _comms

if not hasattr(_comms, "RdmaMemory"):
    raise ImportError("torchcomms.transport has been left out of this build (USE_TRANSPORT=OFF)")

from torchcomms._comms import (
    RdmaEventLoop,
    RdmaMemory,
    RdmaMemoryView,
    RdmaMutableMemoryView,
    RdmaRemoteBuffer,
)
from torchcomms._errors import CommError

__all__ = [
    "RdmaEventLoop",
    "RdmaMemory",
    "RdmaMemoryView",
    "RdmaMutableMemoryView",
    "RdmaRemoteBuffer",
    "RdmaTransport",
]


class _Callback(threading.local):
    runs = False  # on this thread


_callback = _Callback()


class _Transfer(Future[None]):
    """The end of a transfer. It raises for who would wait for ever."""

    def __init__(self, ends: _Ends) -> None:
        super().__init__()
        self.is_told = False  # it has ended, and its callbacks have returned
        self._teller = ends

    def result(self, timeout: float | None = None) -> None:
        self._require_waitable()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._require_waitable()
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[None]], object]) -> None:
        def call(future: Future[None]) -> None:
            outer, _callback.runs = _callback.runs, True
            try:
                fn(future)
            finally:
                _callback.runs = outer

        super().add_done_callback(call)

    def _require_waitable(self) -> None:
        # In a forked child it is not asked whether it is done: a thread of the parent's may have
        # locked it.
        if self._teller is not _ends:
            if not self.is_told:
                raise CommError(
                    "this RDMA transfer is of the process that forked, and had not ended then"
                )
        elif _callback.runs and not self.done():
            raise CommError(
                "a callback of an RDMA transfer cannot wait for one that has not ended"
                "\n  hint: wait in another thread, or go on in a callback of that transfer"
            )


class _Ends:
    """Sets the futures of transfers that have ended, on a thread: the engine's own never waits for
    the interpreter."""

    def __init__(self) -> None:
        self.completions = _comms._RdmaCompletions()
        self._numbers = itertools.count()
        self._pending: dict[int, _Transfer] = {}
        threading.Thread(target=self._deliver, name="torchcomms-rdma", daemon=True).start()

    def future_of(self, begin: Callable[[int], None]) -> Future[None]:
        """Of what `begin` begins under a number."""
        future = _Transfer(self)
        future.set_running_or_notify_cancel()  # a transfer cannot be taken back
        number = next(self._numbers)
        self._pending[number] = future
        try:
            begin(number)
        except BaseException:
            del self._pending[number]
            raise
        return future

    def _deliver(self) -> None:
        while True:
            os.read(self.completions.fd(), 8)
            for number, error in self.completions.take():
                future = self._pending.pop(number)
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)
                future.is_told = True


_ends: _Ends | None = None
_lock = threading.Lock()
_open: weakref.WeakSet[RdmaTransport] = weakref.WeakSet()


def _ends_of_process() -> _Ends:
    global _ends
    with _lock:
        if _ends is None:
            _ends = _Ends()
        return _ends


def _forget() -> None:
    """In a forked child: its parent's thread is not there."""
    global _ends, _lock
    _ends = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget)


@atexit.register
def _close_all() -> None:
    # What is under way holds tensors, which must not outlive the interpreter.
    for transport in list(_open):
        transport.close()


class RdmaTransport:
    """A connection to one peer, whose memory it reads and writes.

    What is under way when it is closed, or collected, fails with AbortedError. When the connection
    fails, all that is under way and all that is asked for later fails with what happened first.
    Any thread may use it. A forked child may not.

    Args:
        device: for whose memory it is meant: CPU, or a CUDA device, whose nearest RDMA devices it
            uses unless CTRAN_IB_HCA names some.
        event_loop: the thread that drives it; else one that all transports of the process share.
        timeout: when nothing has moved for so long while transfers are under way, they fail with
            CommTimeoutError.

    Raises:
        CommError: this machine has no RDMA device that can be used; see supported().
    """

    def __init__(
        self,
        device: torch.device | str | int = "cpu",
        event_loop: RdmaEventLoop | None = None,
        *,
        timeout: timedelta = timedelta(seconds=60),
    ) -> None:
        self.device = torch.device(device)
        if self.device.type not in ("cpu", "cuda"):
            raise ValueError(f"RdmaTransport is for CPU and CUDA devices, not {self.device}")
        self._ends = _ends_of_process()
        gpu = -1 if self.device.index is None or self.device.type == "cpu" else self.device.index
        if self.device == torch.device("cuda") and torch.cuda.is_available():
            gpu = torch.cuda.current_device()
        self._transport = _comms._RdmaTransport(self._ends.completions, event_loop, timeout, gpu)
        _open.add(self)

    @staticmethod
    def supported() -> bool:
        """Whether this machine has an RDMA device that can be used."""
        return _comms._rdma_why_unsupported() is None

    def bind(self) -> bytes:
        """What the peer's connect() takes."""
        return self._transport.bind().encode()

    def connect(self, peer_url: bytes | str) -> int:
        """Connects to the peer whose bind() has said `peer_url`; once. Returns 0.

        It does not wait for the peer. What is sent before the peer has connected is tried again for
        about two seconds.
        """
        if isinstance(peer_url, (bytes, bytearray)):
            peer_url = peer_url.decode(errors="replace")
        self._transport.connect(peer_url)
        return 0

    def connected(self) -> bool:
        """Whether it has been connected, and has not failed since."""
        return self._transport.connected()

    def write(
        self, view: RdmaMemoryView, remote: RdmaRemoteBuffer, notify: bool = False
    ) -> Future[None]:
        """Writes a view to the beginning of the peer's buffer; done when the data are there.

        With `notify`, one wait_for_write() of the peer is done when the data of this write and of
        all before are in place.
        """
        return self._ends.future_of(
            lambda number: self._transport.write(view, remote, notify, number)
        )

    def read(self, view: RdmaMutableMemoryView, remote: RdmaRemoteBuffer) -> Future[None]:
        """Reads the beginning of the peer's buffer into a view; done when the data are here."""
        return self._ends.future_of(lambda number: self._transport.read(view, remote, number))

    def wait_for_write(self) -> Future[None]:
        """Done when the peer has written with `notify`; each such write serves one call.

        It fails with PeerLostError when the peer has ended.
        """
        return self._ends.future_of(self._transport.wait_for_write)

    waitForWrite = wait_for_write

    def close(self) -> None:
        """Ends what is under way with AbortedError. Nothing can be begun any more."""
        self._transport.close()

    def __enter__(self) -> RdmaTransport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
