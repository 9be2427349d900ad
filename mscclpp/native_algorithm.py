"""Algorithms of C++, for Python: through the C interface of libmscclpp (mscclpp/c_api.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from operator import index
from typing import Any

from mscclpp.algorithm import Algorithm, Constraint, check_launch, checked_extras
from mscclpp.engine import Registration
from mscclpp.native_communicator import NativeCommunicator, native_of
from mscclpp.native_library import error_of_call, library
from mscclpp.types import CollectiveBufferMode, DataType, ReduceOp
from mscclpp.utils import torch_dtype_to_mscclpp_dtype

__all__ = ["NativeAlgorithm", "NativeCommunicator"]

_CAPSULE = b"mscclpp::AlgorithmPtr"
_AUTO = 255
_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_BUFFER_MODES = (
    CollectiveBufferMode.ANY,
    CollectiveBufferMode.IN_PLACE,
    CollectiveBufferMode.OUT_OF_PLACE,
)


class NativeAlgorithm(Algorithm):
    """An algorithm of C++. `Algorithm.create_from_native_capsule` makes it."""

    def __init__(self, capsule: object) -> None:
        if not _is_capsule(ctypes.py_object(capsule), _CAPSULE):
            raise TypeError(
                f"{capsule!r} is no capsule of an algorithm, {_CAPSULE.decode()!r}, as a module of "
                f"compile_native makes it"
            )
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        functions = library()
        self._handle = functions.mscclpp_algorithm_share(get(capsule, _CAPSULE))
        if not self._handle:
            raise error_of_call()
        world_size, ranks_per_node = ctypes.c_int(), ctypes.c_int()
        functions.mscclpp_algorithm_constraint(
            self._handle, ctypes.byref(world_size), ctypes.byref(ranks_per_node)
        )
        least, most = ctypes.c_size_t(), ctypes.c_size_t()
        functions.mscclpp_algorithm_range(self._handle, ctypes.byref(least), ctypes.byref(most))
        super().__init__(
            functions.mscclpp_algorithm_name(self._handle).decode(),
            functions.mscclpp_algorithm_collective(self._handle).decode(),
            message_size_range=(least.value, most.value),
            tags=self._read_tags(),
            buffer_mode=_BUFFER_MODES[functions.mscclpp_algorithm_buffer_mode(self._handle)],
            constraint=Constraint(world_size.value, ranks_per_node.value),
        )

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            library().mscclpp_algorithm_free(self._handle)

    def _read_tags(self) -> dict[str, int]:
        tags: dict[str, int] = {}
        value = ctypes.c_uint64()
        while name := library().mscclpp_algorithm_tag(self._handle, len(tags), ctypes.byref(value)):
            tags[name.decode()] = value.value
        return tags

    def set_message_size_range(self, min_message_size: int, max_message_size: int) -> None:
        """Which messages it is for, in bytes. Raises ValueError."""
        super().set_message_size_range(min_message_size, max_message_size)
        if library().mscclpp_algorithm_set_range(self._handle, min_message_size, max_message_size):
            raise error_of_call()

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
        """One call, on every rank in the same order. On a GPU it returns when the work is on the
        stream, on the host when all is done. On a GPU a wait that has ended in vain is raised by
        the next call, or by `CommGroup.check_waits`.

        The first call on a communicator is where its ranks make connections for native algorithms.

        Args:
            comm: `CommGroup.communicator`, or a NativeCommunicator.
            input_buffer, output_buffer: addresses in memory of the GPU that is current, or of the
                host, as the algorithm was compiled.
            stream: of CUDA, for GPUs.
            nblocks, nthreads_per_block: what the algorithm gets; on the host, blocks are threads,
                on which the threads of a block take turns.
            symmetric_memory, extras, accum_dtype: what the algorithm gets.

        Returns:
            What the algorithm says, a number of `CommResult`: 0 for success.

        Raises:
            ValueError: the arguments make no sense: input and output overlap and are not in place,
                or are not as the algorithm's buffer mode says, for example.
            TypeError: `comm` is no communicator, or an address no number.
            CommError: it failed; see mscclpp.errors.
        """
        for what, address, size in (
            ("input", input_buffer, input_size),
            ("output", output_buffer, output_size),
        ):
            if not 0 <= index(size) < 2**63:
                raise ValueError(f"{what}_size is {size}, which is no number of bytes")
            if not 0 <= index(address) < 2**64 or (address == 0 and size > 0):
                raise ValueError(f"an {what} of {size} bytes has no address: it is {address}")
        check_launch(nblocks, nthreads_per_block)
        named = checked_extras(extras)
        code: int = library().mscclpp_algorithm_execute(
            self._handle,
            native_of(comm).handle,
            input_buffer,
            output_buffer,
            input_size,
            output_size,
            DataType(dtype),
            ReduceOp(op),
            stream,
            nblocks,
            nthreads_per_block,
            bool(symmetric_memory),
            len(named),
            (ctypes.c_char_p * len(named))(*(name.encode() for name in named)),
            (ctypes.c_uint64 * len(named))(*named.values()),
            _AUTO if accum_dtype is None else DataType(accum_dtype),
        )
        if code != 0 and library().mscclpp_last_error_code() >= 0:
            raise error_of_call()
        return code

    def register(
        self,
        communicator: str = "",
        *,
        prefer: bool = False,
        dtypes: Iterable[Any] | None = None,
        reductions: Iterable[ReduceOp] = (ReduceOp.SUM,),
    ) -> Registration:
        """Makes it one of the algorithms for calls of its collective, as `PlanAlgorithm.register`
        does: of messages in its range, where its constraint holds, on ranks of one host; on tensors
        of GPUs if it was compiled for them, else of the CPU.

        It runs in a communicator of its own beside the one that it serves. The first call that it
        serves there waits for all ranks. What it returns or throws other than success breaks the
        communicator, with an error that names it and the rank.

        Args:
            communicator: of that name only.
            prefer: it comes first, except before what the hints of a call name.
            dtypes: that it reduces: mscclpp's, torch's, or their names. What only moves data is
                asked for any.
            reductions: that it does.

        Raises:
            TypeError: it reduces, and `dtypes` does not say what.
            ValueError: there is no such type or reduction.
            CommError: it is of a collective that torchcomms does not have.
        """
        if dtypes is None and self.collective in ("allreduce", "reducescatter"):
            raise TypeError(
                f"{self!r} is written in C++, so only you know of which types it makes sums: pass "
                f"dtypes, [mscclpp.DataType.float32] for example"
            )
        types = {torch_dtype_to_mscclpp_dtype(_name_of(one)) for one in dtypes or ()}
        wanted = {ReduceOp(op) for op in reductions} - {ReduceOp.NOP}
        number = library().mscclpp_algorithm_register(
            self._handle, communicator.encode(), bool(prefer), _bits(types), _bits(wanted)
        )
        if number < 0:
            raise error_of_call()
        return Registration(number)

    def reset(self) -> None:
        """Lets go of what earlier calls left; all ranks do so between the same calls."""
        if library().mscclpp_algorithm_reset(self._handle):
            raise error_of_call()


Algorithm._of_capsule = NativeAlgorithm


def _name_of(dtype: Any) -> str:
    return dtype.name if isinstance(dtype, DataType) else str(dtype)


def _bits(numbers: Iterable[int]) -> int:
    return sum(1 << number for number in numbers)
