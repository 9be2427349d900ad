"""What the operations of compiled graphs find by name: communicators, windows, works in flight.

Graphs hold no objects, only their names. A name is given once in the life of a process, so that no
graph ever finds another communicator than the one it was traced with.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from torchcomms._comms import TorchComm, TorchCommWindow, TorchWork

_T = TypeVar("_T", TorchComm, TorchCommWindow)


class _Names(Generic[_T]):
    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._objects: dict[str, weakref.ref[_T]] = {}

    def add(self, thing: _T, wanted: str) -> str:
        with self._lock:
            number = 1
            name = wanted
            while (known := self._objects.get(name)) is not None:
                if known() is thing:
                    return name
                number += 1
                name = f"{wanted}#{number}"
            self._objects[name] = weakref.ref(thing)
            return name

    def find(self, name: str) -> _T:
        known = self._objects.get(name)
        thing = known() if known is not None else None
        if thing is None:
            what = "has gone" if known is not None else "is not known"
            raise RuntimeError(
                f"The {self._what} {name!r} {what}; pass one to torchcomms.functional.register() "
                "and keep it as long as compiled code uses it"
            )
        return thing


_comms: _Names[TorchComm] = _Names("communicator")
_windows: _Names[TorchCommWindow] = _Names("window")


def register(comm: TorchComm) -> str:
    """The name by which operations of compiled graphs find a communicator.

    That is the communicator's own, followed by "#2", "#3" ... where others of this process have
    had it. It stays the caller's: when it has gone, the operations raise RuntimeError.
    """
    return _comms.add(comm, comm.get_name())


def register_window(window: TorchCommWindow) -> str:
    """As `register`, of a window."""
    return _windows.add(window, "window")


def comm_of(name: str) -> TorchComm:
    return _comms.find(name)


def window_of(name: str) -> TorchCommWindow:
    return _windows.find(name)


class _Works:
    """Works that have been started and not been waited for, by the memory they write.

    It holds the tensors, so that none of their addresses is used again. A work that has failed
    stays, so that each wait for it fails.
    """

    # How many there may be before those that have ended are looked for.
    _MANY = 64

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[int, list[_Entry]] = {}  # by storage
        self._number = 0
        self._check_at = self._MANY

    def add(self, tensors: Iterable[Tensor], work: TorchWork) -> None:
        with self._lock:
            for tensor in tensors:
                entry = _Entry(tensor, *_place(tensor), work)
                self._entries.setdefault(_storage(tensor), []).append(entry)
                self._number += 1
            if self._number >= self._check_at:
                self._keep(lambda e: not e.work.is_completed() or e.work.exception() is not None)
                self._check_at = max(self._MANY, 2 * self._number)

    def _keep(self, wanted: Callable[[_Entry], bool]) -> None:
        kept = {key: [e for e in entries if wanted(e)] for key, entries in self._entries.items()}
        self._entries = {key: entries for key, entries in kept.items() if entries}
        self._number = sum(map(len, self._entries.values()))

    def find(self, tensors: Iterable[Tensor]) -> list[TorchWork]:
        """Those that write any of the memory of these."""
        found: dict[int, TorchWork] = {}
        with self._lock:
            for tensor in tensors:
                begin, end = _place(tensor)
                for entry in self._entries.get(_storage(tensor), ()):
                    if entry.begin < end and begin < entry.end:
                        found[id(entry.work)] = entry.work
        return list(found.values())

    def wait(self, tensors: Iterable[Tensor]) -> None:
        tensors = list(tensors)
        for work in self.find(tensors):
            work.wait()
            with self._lock:
                for key in {_storage(tensor) for tensor in tensors} & self._entries.keys():
                    left = [entry for entry in self._entries[key] if entry.work is not work]
                    self._number -= len(self._entries[key]) - len(left)
                    if left:
                        self._entries[key] = left
                    else:
                        del self._entries[key]


class _Entry(NamedTuple):
    tensor: Tensor
    begin: int  # bytes of its storage
    end: int
    work: TorchWork


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _place(tensor: Tensor) -> tuple[int, int]:
    """The bytes of its storage that a tensor is in; an empty one, which stands for a work, has
    some, too."""
    size = tensor.element_size()
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    begin = int(tensor.storage_offset()) * size
    return begin, begin + (max(int(last), 0) + 1) * size


works = _Works()


def is_plain(*tensors: Tensor) -> bool:
    """Whether an operation on these is carried out now: nobody traces, nobody differentiates."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    if _get_current_dispatch_mode() is not None or torch._C._functorch.peek_interpreter_stack():
        return False
    differentiates = torch.is_grad_enabled()
    return all(
        type(t) in (Tensor, torch.nn.Parameter) and not (differentiates and t.requires_grad)
        for t in tensors
    )
