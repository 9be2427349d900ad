"""Algorithms of C++, for Python: through the C interface of libmscclpp (mscclpp/c_api.h)."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from mscclpp.native import get_lib

__all__ = ["NativeAlgorithm", "NativeCommunicator"]

_CAPSULE = b"mscclpp::AlgorithmPtr"
_NOP = 255
_AUTO = 255
_TAG = 0x6E617469  # of the message that has the unique id
_ID_BYTES = 257  # in hexadecimal digits, with a zero
_TIMEOUT = 600

_log = logging.getLogger("mscclpp")


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(Path(get_lib()) / "libmscclpp.so"))
    pointer, text, integer, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
    sizes, words = ctypes.POINTER(size), ctypes.POINTER(ctypes.c_uint64)
    integers = ctypes.POINTER(integer)
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "last_error": (text, []),
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


def _last_error() -> str:
    return bytes(_library().mscclpp_last_error()).decode(errors="replace")


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
        RuntimeError: it says who did not come, or what is wrong.
    """

    def __init__(self, rank: int, size: int, where: str, timeout: int = _TIMEOUT) -> None:
        self.rank, self.size = rank, size
        self._owner = os.getpid()
        self.handle = _library().mscclpp_communicator_create(rank, size, where.encode(), timeout)
        if not self.handle:
            raise RuntimeError(_last_error())

    @classmethod
    def over(cls, channel: Channel) -> NativeCommunicator:
        """That of the ranks of a channel, which it tells each other how they meet."""
        text = ctypes.create_string_buffer(_ID_BYTES)
        if channel.rank == 0:
            if _library().mscclpp_unique_id(text) != 0:
                raise RuntimeError(_last_error())
            for peer in range(1, channel.size):
                channel.send(text, peer, _TAG)
        else:
            channel.recv(text, 0, _TAG)
        return cls(channel.rank, channel.size, text.value.decode())

    def __del__(self) -> None:
        # A forked child has none of its parent's threads.
        if getattr(self, "handle", None) and self._owner == os.getpid():
            _library().mscclpp_communicator_free(self.handle)


def _native(communicator: Any) -> NativeCommunicator:
    """The native communicator beside another one: made at the first call of all ranks."""
    if isinstance(communicator, NativeCommunicator):
        return communicator
    for known, made in _known:
        if known is communicator:
            return made
    made = NativeCommunicator.over(communicator)
    _known.append((communicator, made))
    return made


_known: list[tuple[Any, NativeCommunicator]] = []


class NativeAlgorithm:
    """An algorithm of C++, out of the capsule that a compiled module returns."""

    def __init__(self, capsule: object) -> None:
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        library = _library()
        self._handle = library.mscclpp_algorithm_share(get(capsule, _CAPSULE))
        if not self._handle:
            raise RuntimeError(_last_error())
        self._capsule = capsule  # its code lives in a module that stays loaded
        self.name: str = library.mscclpp_algorithm_name(self._handle).decode()
        self.collective: str = library.mscclpp_algorithm_collective(self._handle).decode()
        world_size, ranks_per_node = ctypes.c_int(), ctypes.c_int()
        library.mscclpp_algorithm_constraint(
            self._handle, ctypes.byref(world_size), ctypes.byref(ranks_per_node)
        )
        self.world_size, self.ranks_per_node = world_size.value, ranks_per_node.value
        self.buffer_mode = ("any", "in_place", "out_of_place")[
            library.mscclpp_algorithm_buffer_mode(self._handle)
        ]
        self.tags = self._read_tags()

    def __repr__(self) -> str:
        return f"<native {self.collective} {self.name!r}>"

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            _library().mscclpp_algorithm_free(self._handle)

    def is_dsl_algorithm(self) -> bool:
        """Whether it was written in `mscclpp.language`."""
        return False

    def is_native_algorithm(self) -> bool:
        """Whether it was written in C++."""
        return True

    def _read_tags(self) -> dict[str, int]:
        tags: dict[str, int] = {}
        value = ctypes.c_uint64()
        while name := _library().mscclpp_algorithm_tag(
            self._handle, len(tags), ctypes.byref(value)
        ):
            tags[name.decode()] = value.value
        return tags

    @property
    def message_size_range(self) -> tuple[int, int]:
        """Which messages it is for, in bytes."""
        least, most = ctypes.c_size_t(), ctypes.c_size_t()
        _library().mscclpp_algorithm_range(self._handle, ctypes.byref(least), ctypes.byref(most))
        return least.value, most.value

    def set_message_size_range(self, min_message_size: int, max_message_size: int) -> None:
        """Which messages it is for, in bytes. Raises ValueError."""
        if _library().mscclpp_algorithm_set_range(self._handle, min_message_size, max_message_size):
            raise ValueError(_last_error())

    def execute(
        self,
        comm: Any,
        input_buffer: int,
        output_buffer: int,
        input_size: int,
        output_size: int,
        dtype: int,
        op: int = _NOP,
        stream: int = 0,
        executor: object = None,
        nblocks: int = 0,
        nthreads_per_block: int = 0,
        symmetric_memory: bool = False,
        extras: Mapping[str, int] | None = None,
        accum_dtype: int | None = None,
    ) -> int:
        """One call, on every rank in the same order; where kernels run on the host it returns when
        it is done. Returns the code of a CommResult, 0 for success; why it failed is logged.

        Args:
            comm: a NativeCommunicator, or what has `rank`, `size`, `send` and `recv`.
            input_buffer, output_buffer: addresses; sizes are in bytes.
            dtype, op, accum_dtype: numbers of `mscclpp.DataType` and `mscclpp.ReduceOp`.
        """
        extras = extras or {}
        names = (ctypes.c_char_p * len(extras))(*(name.encode() for name in extras))
        values = (ctypes.c_uint64 * len(extras))(*extras.values())
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
            len(extras),
            names,
            values,
            _AUTO if accum_dtype is None else int(accum_dtype),
        )
        if code != 0 and (why := _last_error()):
            _log.error("%s: %s", self.name, why)
        return code

    def reset(self) -> None:
        """Lets go of what earlier calls left, between the same calls on all ranks."""
        if _library().mscclpp_algorithm_reset(self._handle):
            raise RuntimeError(_last_error())
