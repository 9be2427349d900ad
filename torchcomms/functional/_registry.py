"""What the operations of compiled graphs find by name: communicators, windows, works in flight.

Graphs hold no objects, only their names. A name is given once in the life of a process, so that no
graph ever finds another communicator than the one it was traced with.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import Generic, TypeVar

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
    """Works that have been started and not been waited for, by the tensors they write.

    It holds the tensors, so that none of their addresses is used again.
    """

    # How many there may be before those that have ended are looked for.
    _MANY = 64

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works: dict[int, tuple[Tensor, TorchWork]] = {}
        self._check_at = self._MANY

    @staticmethod
    def _key(tensor: Tensor) -> int:
        return int(tensor.untyped_storage()._cdata)

    def add(self, tensors: Iterable[Tensor], work: TorchWork) -> None:
        with self._lock:
            for tensor in tensors:
                self._works[self._key(tensor)] = (tensor, work)
            if len(self._works) >= self._check_at:
                self._works = {
                    key: entry
                    for key, entry in self._works.items()
                    if not entry[1].is_completed() or entry[1].exception() is not None
                }
                self._check_at = max(self._MANY, 2 * len(self._works))

    def find(self, tensors: Iterable[Tensor]) -> list[TorchWork]:
        with self._lock:
            found = [self._works.get(self._key(tensor)) for tensor in tensors]
        unique = {id(entry[1]): entry[1] for entry in found if entry is not None}
        return list(unique.values())

    def wait(self, tensors: Iterable[Tensor]) -> None:
        tensors = list(tensors)
        with self._lock:
            found = [self._works.pop(self._key(tensor), None) for tensor in tensors]
        waited: set[int] = set()
        for entry in found:
            if entry is not None and id(entry[1]) not in waited:
                waited.add(id(entry[1]))
                entry[1].wait()


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
