"""libmscclpp through its C interface (mscclpp/c_api.h)."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from operator import index
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mscclpp import _runtime, errors
from mscclpp.folders import get_lib

__all__ = ["NativeObject", "Use", "checked", "error_of_call", "in_range", "library", "pointer_of"]

# By the numbers of mscclpp::ErrorCode; of the others, CommError.
_ERRORS: dict[int, type[Exception]] = {
    2: errors.PeerLostError,
    3: ValueError,
    4: errors.CommTimeoutError,
    5: errors.AbortedError,
}

_INTERRUPTED = 100


class _Made(ctypes.c_void_p):
    """What a function of the library has made. No number is one."""


_pointer, _text, _integer, _size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
_word, _number = ctypes.c_uint64, ctypes.c_int64
_words = ctypes.POINTER(_word)
_integers = ctypes.POINTER(_integer)
_sizes = ctypes.POINTER(_size)
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "last_error": (_text, []),
    "last_error_code": (_integer, []),
    "unique_id": (_integer, [_text]),
    "communicator_create": (_pointer, [_integer, _integer, _text, _integer]),
    "communicator_abort": (None, [_pointer, _text]),
    "communicator_free": (None, [_pointer]),
    "communicator_check": (_integer, [_pointer]),
    "algorithm_share": (_pointer, [_pointer]),
    "algorithm_free": (None, [_pointer]),
    "algorithm_name": (_text, [_pointer]),
    "algorithm_collective": (_text, [_pointer]),
    "algorithm_buffer_mode": (_integer, [_pointer]),
    "algorithm_constraint": (None, [_pointer, _integers, _integers]),
    "algorithm_tag": (_text, [_pointer, _size, _words]),
    "algorithm_range": (None, [_pointer, _sizes, _sizes]),
    "algorithm_set_range": (_integer, [_pointer, _size, _size]),
    "algorithm_execute": (
        _integer,
        [_pointer] * 4
        + [_size, _size, _integer, _integer, _pointer, _integer, _integer, _integer, _size]
        + [ctypes.POINTER(_text), _words, _integer],
    ),
    "algorithm_reset": (_integer, [_pointer]),
    "algorithm_register": (_number, [_pointer, _text, _integer, _word, _word]),
    "object_free": (None, [_pointer]),
    "future_get": (_Made, [_pointer]),
    "device_handle": (_size, [_pointer, _pointer, _size]),
    "connect": (_Made, [_pointer, *[_integer] * 6]),
    "connection_transport": (_integer, [_pointer, _integer]),
    "connection_write": (_integer, [_pointer, _pointer, _word, _pointer, _word, _word]),
    "connection_update_and_sync": (_integer, [_pointer, _pointer, _word, _words, _word]),
    "connection_flush": (_integer, [_pointer, _number]),
    "register_memory": (_Made, [_pointer, _pointer, _size, _word]),
    "send_memory": (_integer, [_pointer, _pointer, _integer, _integer]),
    "receive_memory": (_Made, [_pointer, _integer, _integer]),
    "memory_data": (_pointer, [_pointer]),
    "memory_size": (_size, [_pointer]),
    "memory_transports": (_word, [_pointer]),
    "build_semaphore": (_Made, [_pointer, _pointer, _integer, _integer]),
    "host_to_device_semaphore": (_Made, [_pointer]),
    "host_to_host_semaphore": (_Made, [_pointer]),
    "device_to_device_semaphore": (_Made, [_pointer]),
    "semaphore_signal": (_integer, [_pointer]),
    "semaphore_poll": (_integer, [_pointer]),
    "semaphore_wait": (_integer, [_pointer, _number]),
    "memory_channel": (_Made, [_pointer] * 4),
    "proxy_service": (_Made, [_integer, _integer]),
    "proxy_add": (_number, [_pointer, _pointer]),
    "proxy_start": (_integer, [_pointer, _integer]),
    "proxy_stop": (_integer, [_pointer]),
    "port_channel": (_Made, [_pointer, ctypes.c_uint32, _number, _number]),
    "fifo": (_Made, [_integer, _integer]),
    "fifo_poll": (_integer, [_pointer, _words]),
    "fifo_pop": (_integer, [_pointer]),
    "connect_nvls": (_Made, [_pointer, _integers, _size, _size]),
    "bind_memory": (_Made, [_pointer, _pointer, _size]),
}


# Of the integers that functions take: ctypes would take others for these.
_RANGES = {
    _integer: (-(2**31), 2**31 - 1),
    ctypes.c_uint: (0, 2**32 - 1),
    _number: (-(2**63), 2**63 - 1),
    _word: (0, 2**64 - 1),
    _size: (0, 2**64 - 1),
    _pointer: (0, 2**64 - 1),
}


def in_range(function: Callable[..., Any], types: Sequence[Any]) -> Callable[..., Any]:
    """A function of ctypes whose integers are what they seem: it raises ValueError for those that
    do not fit, and TypeError for what is no integer."""
    numbers = [(i, kind, *_RANGES[kind]) for i, kind in enumerate(types) if kind in _RANGES]

    def call(*arguments: Any) -> Any:
        for i, kind, least, most in numbers:
            given = arguments[i]
            if kind is _pointer and not isinstance(given, int):
                continue
            if not least <= index(given) <= most:
                raise ValueError(f"{given} is not a number from {least} to {most}")
        return function(*arguments)

    return call


@functools.cache
def library() -> SimpleNamespace:
    """Loaded when it is first asked for."""
    loaded = ctypes.CDLL(str(Path(get_lib()) / "libmscclpp.so"))
    functions = SimpleNamespace()
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, f"mscclpp_{name}")
        function.restype, function.argtypes = result, arguments
        setattr(functions, f"mscclpp_{name}", in_range(function, arguments))
    # Waits on the main thread end with what a signal's handler raises.
    loaded.mscclpp_set_interruption(ctypes.c_void_p(_runtime.is_interrupted()))
    return functions


def error_of_call() -> BaseException:
    """The one of the call before."""
    code = library().mscclpp_last_error_code()
    # A module of C++ may have been interrupted before: that is not of this call.
    raised = _runtime.take_raised()
    if raised is not None and code == _INTERRUPTED:
        return raised
    kind = _ERRORS.get(code, errors.CommError)
    return kind(bytes(library().mscclpp_last_error()).decode(errors="replace"))


def checked(code: int) -> None:
    """Raises the error of the call that returned `code`, unless that is 0."""
    if code != 0:
        raise error_of_call()


class Use:
    """Of a communicator: shared by what it has made, until it is finalized."""

    is_over = False

    def check(self) -> None:
        if self.is_over:
            raise ValueError("the group has been finalized: its objects are of no more use")


class NativeObject:
    """What the library made: the pointer is this one's.

    Args:
        use: of the communicator by which it reaches other ranks, if it does.
    """

    def __init__(self, pointer: _Made, use: Use | None = None) -> None:
        if not isinstance(pointer, _Made):
            raise TypeError(f"a {type(self).__name__} is what a CommGroup makes, not {pointer!r}")
        self._owner = os.getpid()
        self._own = pointer
        self._use = use
        if not pointer:
            raise error_of_call()

    @property
    def _pointer(self) -> _Made:
        if self._use is not None:
            self._use.check()
        return self._own

    def __del__(self) -> None:
        # A forked child has none of its parent's threads.
        if getattr(self, "_own", None) and self._owner == os.getpid():
            library().mscclpp_object_free(self._own)


def pointer_of(given: object, *kinds: type[NativeObject]) -> _Made:
    """The pointer of an object. Raises TypeError unless it is of one of those kinds."""
    if not isinstance(given, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"this must be a {names}, not {type(given).__name__}")
    return given._pointer
