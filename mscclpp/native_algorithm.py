"""Algorithms of C++, for Python: through the C interface of libmscclpp (mscclpp/c_api.h)."""

from __future__ import annotations

import ctypes
import functools
import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from mscclpp import errors
from mscclpp.algorithm import Algorithm, Constraint
from mscclpp.native import get_lib
from mscclpp.types import CollectiveBufferMode, ReduceOp

__all__ = ["NativeAlgorithm", "NativeCommunicator"]

_CAPSULE = b"mscclpp::AlgorithmPtr"
_AUTO = 255
_TAG = 0x6E617469  # of the message that has the unique id
_ID_BYTES = 257  # in hexadecimal digits, with a zero
_TIMEOUT = 600
_BUFFER_MODES = (
    CollectiveBufferMode.ANY,
    CollectiveBufferMode.IN_PLACE,
    CollectiveBufferMode.OUT_OF_PLACE,
)
# By the numbers of mscclpp::ErrorCode; of the others, CommError.
_ERRORS: dict[int, type[Exception]] = {
    2: errors.PeerLostError,
    3: ValueError,
    4: errors.CommTimeoutError,
    5: errors.AbortedError,
}


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(Path(get_lib()) / "libmscclpp.so"))
    pointer, text, integer, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
    sizes, words = ctypes.POINTER(size), ctypes.POINTER(ctypes.c_uint64)
    integers = ctypes.POINTER(integer)
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "last_error": (text, []),
        "last_error_code": (integer, []),
        "unique_id": (integer, [text]),
        "communicator_create": (pointer, [integer, integer, text, integer]),
        "communicator_free": (None, [pointer]),
        "algorithm_share": (pointer, [pointer]),
        "algorithm_free": (None, [pointer]),
        "algorithm_name": (text, [pointer]),
        "algorithm_collective": (text, [pointer]),
        "algorithm_buffer_mode": (integer, [pointer]),
        "algorithm_constraint": (None, [pointer, integers, integers]),
        "algorithm_tag": (text, [pointer, size, words]),
        "algorithm_range": (None, [pointer, sizes, sizes]),
        "algorithm_set_range": (integer, [pointer, size, size]),
        "algorithm_execute": (
            integer,
            [pointer] * 4
            + [size, size, integer, integer, pointer, integer, integer, integer, size]
            + [ctypes.POINTER(text), words, integer],
        ),
        "algorithm_reset": (integer, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, f"mscclpp_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def _error() -> Exception:
    """The one of the call before."""
    library = _library()
    kind = _ERRORS.get(library.mscclpp_last_error_code(), errors.CommError)
    return kind(bytes(library.mscclpp_last_error()).decode(errors="replace"))


class Channel(Protocol):
    """Whatever ranks send messages through: the communicator of a CommGroup, for example."""

    rank: int
    size: int

    def send(self, buffer: Any, peer: int, tag: int, /) -> Any: ...
    def recv(self, buffer: Any, peer: int, tag: int, /) -> Any: ...


class NativeCommunicator:
    """A `mscclpp::Communicator` of C++. Making one is collective.

    Args:
        where: how ranks find each other: "interface:address:port" or "address:port" of rank 0, or
            the URL of a store of the engine ("file:///DIRECTORY").
        timeout: seconds that making it may take.

    Raises:
        CommError: it says who did not come, or what is wrong.
    """

    def __init__(self, rank: int, size: int, where: str, timeout: int = _TIMEOUT) -> None:
        self.rank, self.size = rank, size
        self._owner = os.getpid()
        self.handle = _library().mscclpp_communicator_create(rank, size, where.encode(), timeout)
        if not self.handle:
            raise _error()

    @classmethod
    def over(cls, channel: Channel) -> NativeCommunicator:
        """That of the ranks of a channel, which it tells each other how they meet."""
        text = ctypes.create_string_buffer(_ID_BYTES)
        if channel.rank == 0:
            if _library().mscclpp_unique_id(text) != 0:
                raise _error()
            for peer in range(1, channel.size):
                channel.send(text, peer, _TAG)
        else:
            channel.recv(text, 0, _TAG)
        return cls(channel.rank, channel.size, text.value.decode())

    def __del__(self) -> None:
        # A forked child has none of its parent's threads.
        if getattr(self, "handle", None) and self._owner == os.getpid():
            _library().mscclpp_communicator_free(self.handle)


# The native communicator beside each communicator: made in the first call of all ranks.
_known: weakref.WeakKeyDictionary[Any, NativeCommunicator] = weakref.WeakKeyDictionary()


def _native(communicator: Any) -> NativeCommunicator:
    if isinstance(communicator, NativeCommunicator):
        return communicator
    known = _known.get(communicator)
    if known is None:
        known = _known[communicator] = NativeCommunicator.over(communicator)
    return known


class NativeAlgorithm(Algorithm):
    """An algorithm of C++. `Algorithm.create_from_native_capsule` makes it."""

    def __init__(self, capsule: object) -> None:
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        library = _library()
        self._handle = library.mscclpp_algorithm_share(get(capsule, _CAPSULE))
        if not self._handle:
            raise _error()
        world_size, ranks_per_node = ctypes.c_int(), ctypes.c_int()
        library.mscclpp_algorithm_constraint(
            self._handle, ctypes.byref(world_size), ctypes.byref(ranks_per_node)
        )
        least, most = ctypes.c_size_t(), ctypes.c_size_t()
        library.mscclpp_algorithm_range(self._handle, ctypes.byref(least), ctypes.byref(most))
        super().__init__(
            library.mscclpp_algorithm_name(self._handle).decode(),
            library.mscclpp_algorithm_collective(self._handle).decode(),
            message_size_range=(least.value, most.value),
            tags=self._read_tags(),
            buffer_mode=_BUFFER_MODES[library.mscclpp_algorithm_buffer_mode(self._handle)],
            constraint=Constraint(world_size.value, ranks_per_node.value),
        )

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            _library().mscclpp_algorithm_free(self._handle)

    def _read_tags(self) -> dict[str, int]:
        tags: dict[str, int] = {}
        value = ctypes.c_uint64()
        while name := _library().mscclpp_algorithm_tag(
            self._handle, len(tags), ctypes.byref(value)
        ):
            tags[name.decode()] = value.value
        return tags

    def set_message_size_range(self, min_message_size: int, max_message_size: int) -> None:
        """Which messages it is for, in bytes. Raises ValueError."""
        super().set_message_size_range(min_message_size, max_message_size)
        if _library().mscclpp_algorithm_set_range(self._handle, min_message_size, max_message_size):
            raise _error()

    def execute(
        self,
        comm: Any,
        input_buffer: int,
        output_buffer: int,
        input_size: int,
        output_size: int,
        dtype: int,
        op: int = ReduceOp.NOP,
        stream: int = 0,
        executor: Any = None,
        nblocks: int = 0,
        nthreads_per_block: int = 0,
        symmetric_memory: bool = False,
        extras: Mapping[str, int] | None = None,
        accum_dtype: int | None = None,
    ) -> int:
        """One call, on every rank in the same order. On the host it returns when all is done.

        The first call on a communicator is where its ranks make connections for native algorithms.

        Args:
            comm: `CommGroup.communicator`, or a NativeCommunicator.
            nblocks, nthreads_per_block: what the algorithm gets; on the host, blocks are threads,
                on which the threads of a block take turns.
            symmetric_memory, extras, accum_dtype: what the algorithm gets.

        Returns:
            What the algorithm says, a number of `CommResult`: 0 for success.

        Raises:
            ValueError: the arguments make no sense.
            CommError: it failed; see mscclpp.errors.
        """
        named = extras or {}
        code: int = _library().mscclpp_algorithm_execute(
            self._handle,
            _native(comm).handle,
            input_buffer,
            output_buffer,
            input_size,
            output_size,
            int(dtype),
            int(op),
            stream,
            nblocks,
            nthreads_per_block,
            int(symmetric_memory),
            len(named),
            (ctypes.c_char_p * len(named))(*(name.encode() for name in named)),
            (ctypes.c_uint64 * len(named))(*named.values()),
            _AUTO if accum_dtype is None else int(accum_dtype),
        )
        if code != 0 and _library().mscclpp_last_error_code() >= 0:
            raise _error()
        return code

    def reset(self) -> None:
        """Lets go of what earlier calls left; all ranks do so between the same calls."""
        if _library().mscclpp_algorithm_reset(self._handle):
            raise _error()
