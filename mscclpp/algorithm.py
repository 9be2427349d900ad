"""Algorithms: what all of them can do, however they are written."""

from __future__ import annotations

import json
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar

from mscclpp import _runtime
from mscclpp.types import (
    AlgorithmType,
    CollectiveBufferMode,
    CommResult,
    DataType,
    ReduceOp,
)

if TYPE_CHECKING:
    from mscclpp._runtime import Communicator, Operation

__all__ = ["Algorithm", "AlgorithmCollection", "CollectiveRequest", "Constraint", "Selector"]

NO_LIMIT = 2**64 - 1
NOT_ON_GPUS = -1  # of Operation.run

# The engine's names of what MSCCL++ calls collectives.
KINDS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
}
_FLOATS_OF_AT_MOST_32_BITS = (
    DataType.float16,
    DataType.bfloat16,
    DataType.float32,
    DataType.float8_e4m3,
    DataType.float8_e5m2,
)


@dataclass(frozen=True)
class Constraint:
    """Where an algorithm may run; 0 means anywhere."""

    world_size: int = 0
    n_ranks_per_node: int = 0


_Constraint = Constraint  # which the class has under the same name


class Algorithm:
    """A collective that can be executed. `mscclpp.compile` and `AlgorithmCollectionBuilder` make
    them.

    Attributes:
        name: of the algorithm.
        collective: "allreduce", "allgather", "reducescatter", "alltoall" or "broadcast"; of
            programs that promise no result, "sendrecv" or "test".
        message_size_range: the least and the most bytes for which a selector should take it;
            `execute` takes any.
        tags: numbers by name, for selectors.
        buffer_mode: whether input and output may be the same memory.
        constraint: where it may run.
    """

    Constraint: ClassVar = Constraint

    def __init__(
        self,
        name: str,
        collective: str,
        *,
        message_size_range: tuple[int, int] = (0, NO_LIMIT),
        tags: Mapping[str, int] | None = None,
        buffer_mode: CollectiveBufferMode = CollectiveBufferMode.ANY,
        constraint: _Constraint | None = None,
    ) -> None:
        self.name = name
        self.collective = collective
        self.message_size_range = message_size_range
        self.tags: dict[str, int] = dict(tags or {})
        self.buffer_mode = buffer_mode
        self.constraint = constraint or _Constraint()
        self._operations: dict[int, Operation] = {}  # by id of the communicator
        self._finalizers: list[weakref.finalize[..., Any]] = []  # of what is prepared
        self._needs_executor = False
        self._told: set[str] = set()

    def __repr__(self) -> str:
        return f"<{self.collective} {self.name!r}>"

    @staticmethod
    def create_from_native_capsule(capsule: object) -> Algorithm:
        """The algorithm of C++ in a capsule that a module of `mscclpp.compile_native` returns."""
        return Algorithm._of_capsule(capsule)

    @property
    def type(self) -> AlgorithmType:
        """What it is written in."""
        return AlgorithmType.NATIVE

    def is_dsl_algorithm(self) -> bool:
        """Whether it was written in `mscclpp.language`."""
        return self.type is AlgorithmType.DSL

    def is_native_algorithm(self) -> bool:
        """Whether it was written in C++."""
        return self.type is AlgorithmType.NATIVE

    def set_message_size_range(self, min_message_size: int, max_message_size: int) -> None:
        """Which messages it is for, in bytes. Raises ValueError."""
        for name, size in (
            ("min_message_size", min_message_size),
            ("max_message_size", max_message_size),
        ):
            within(name, size, 2**64)
        if min_message_size > max_message_size:
            raise ValueError(f"no message has {min_message_size} to {max_message_size} bytes")
        self.message_size_range = (min_message_size, max_message_size)

    def execute(
        self,
        comm: Communicator,
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
        """Runs it: on memory of the CPU to its end, on memory of a GPU behind what `stream` holds.
        Collective over the ranks of `comm`. Results are the same bits on every rank; reductions are
        in the order of the ranks.

        The first execute on a GPU's memory makes the communicator of the ranks' GPUs, which cannot
        be done in a capture (`CommGroup.use_gpu` does it, too). From then on nothing is exchanged,
        allocated or compiled but in the first call of an algorithm, or of a type and reduction.

        Args:
            comm: `CommGroup.communicator`.
            input_buffer: address of the input, as `tensor.data_ptr()`. It may be the output's.
            output_buffer: address of the output, in memory of the same kind.
            input_size: bytes of the input: of all-gather of one block, of reduce-scatter and
                all-to-all of one block per rank.
            output_size: bytes of the output.
            dtype: of `mscclpp.DataType`.
            op: of `mscclpp.ReduceOp`; NOP is what the algorithm does by itself.
            stream: of CUDA, as `torch.cuda.current_stream().cuda_stream`; 0 is the default one.
                It may be capturing. For memory of the CPU it is 0.
            executor: `mscclpp.Executor(comm)`, for programs in the DSL.
            nblocks, nthreads_per_block: how many thread blocks a kernel has at most, and how many
                threads each of them, up to 512; 0: as it likes. The same on all ranks. On the CPU
                they have no effect.
            symmetric_memory: the buffers are in `RawGpuBuffer`s on every rank. On GPUs the first
                call with one waits, at most some seconds, until all ranks have mapped it, so data
                goes straight from it and to it at once; without, the engine finds out by itself,
                and begins when they have. Otherwise it has no effect.
            extras: numbers that the algorithm knows: {"root": rank} of a broadcast.
            accum_dtype: in what sums are to be made, at least. Those of small floats are float32
                ones, so it may be float32 or a smaller float; of other types it is their own.

        Returns:
            0, or COMM_INVALID_ARGUMENT of `CommResult` where there is no such reduction or sum;
            a warning says why, once.

        Raises:
            ValueError, TypeError: the arguments make no sense.
            CommError: it failed; see mscclpp.errors. The communicator is broken. What fails on a
                stream is raised by the next call.
        """
        operation = self._operations.get(id(comm))
        if operation is None:
            operation = self._prepared(comm)
        if self._needs_executor and getattr(executor, "communicator", None) is not comm:
            raise ValueError(
                f"{self.name!r} is a program of the DSL: pass executor=mscclpp.Executor(comm) of "
                f"the same communicator"
            )
        root = 0
        if nblocks or nthreads_per_block or extras or accum_dtype is not None:
            why = self._check_options(nblocks, nthreads_per_block, accum_dtype, dtype)
            if why:
                return self._refuse(why)
            root = self._root(checked_extras(extras), comm.size)
        if symmetric_memory is not False and symmetric_memory is not True:
            raise TypeError(
                f"symmetric_memory must be a bool, not {type(symmetric_memory).__name__}"
            )
        if op == 255:
            op = self._own_op
        elif self._only_op is not None and op != self._only_op:
            raise ValueError(
                f"{self.name!r} is written as {ReduceOp(self._only_op).name}, so it cannot be "
                f"executed as {ReduceOp(op).name}"
            )
        code = operation.run(
            input_buffer, output_buffer, input_size, output_size, dtype, op, root,
            stream, nblocks, nthreads_per_block, symmetric_memory,
        )  # fmt: skip
        if code == NOT_ON_GPUS:
            at = input_buffer if input_size else output_buffer
            operation.use_gpu(self._gpu_hints(comm), at, stream)
            code = operation.run(
                input_buffer, output_buffer, input_size, output_size, dtype, op, root,
                stream, nblocks, nthreads_per_block, symmetric_memory,
            )  # fmt: skip
        return code if code == 0 else self._refuse(_runtime.why_not(dtype, op))

    def explain(self, comm: Communicator, nbytes: int, dtype: int) -> str:
        """The name of the engine's algorithm that serves an execute in which every rank contributes
        so many bytes: on GPUs once it has been executed there, else on the CPU. The engine takes
        one of its own where this one would round more than once, or has more thread blocks than
        kernels may have."""
        operation = self._operations.get(id(comm)) or self._prepared(comm)
        within("nbytes", nbytes, 2**63)
        within("dtype", dtype, len(DataType))
        found: str = json.loads(operation.explain(nbytes, dtype))["algorithm"]
        return found

    def reset(self) -> None:
        """Forgets what was prepared for communicators."""
        while self._finalizers:
            self._finalizers.pop()()

    # For those who write a kind of algorithms.

    _of_capsule: ClassVar[Callable[[object], Algorithm]]  # mscclpp.native_algorithm sets it
    _own_op: int = ReduceOp.SUM  # what NOP means
    _only_op: int | None = None  # the one that may be asked for; None: any
    _extras: tuple[str, ...] = ()

    def _hints(self, comm: Communicator) -> dict[str, str]:
        """What tells the engine to take this algorithm."""
        raise NotImplementedError(f"{self!r} cannot be executed")

    def _gpu_hints(self, comm: Communicator) -> dict[str, str]:
        """The same of the communicator of the GPUs."""
        raise NotImplementedError(f"{self!r} cannot be executed on GPUs")

    def _prepared(self, comm: Communicator) -> Operation:
        world = self.constraint.world_size
        communicator = checked_communicator(comm)
        if world and communicator.size != world:
            raise ValueError(
                f"{self.name!r} is for {world} ranks, and the communicator has {communicator.size}"
            )
        operation = self._operation(communicator)
        self._operations[id(comm)] = operation
        self._when_gone(comm, self._operations.pop, id(comm), None)
        return operation

    def _operation(self, comm: Communicator) -> Operation:
        if self.collective not in KINDS:
            raise ValueError(f"{self!r} cannot be executed: it is none of {', '.join(KINDS)}")
        return _runtime.prepare(comm, KINDS[self.collective], self._hints(comm))

    def _when_gone(self, owner: object, function: Callable[..., Any], *arguments: Any) -> None:
        """Calls a function when the owner is no more, and before that if `reset` is called."""
        self._finalizers = [one for one in self._finalizers if one.alive]
        finalizer = weakref.finalize(owner, function, *arguments)
        finalizer.atexit = False
        self._finalizers.append(finalizer)

    def _check_options(
        self, nblocks: int, nthreads: int, accum_dtype: int | None, dtype: int
    ) -> str:
        check_launch(nblocks, nthreads)
        if accum_dtype is None or accum_dtype == dtype:
            return ""
        if accum_dtype not in list(DataType):
            raise ValueError(f"accum_dtype is {accum_dtype!r}, which is no mscclpp.DataType")
        if self.collective not in ("allreduce", "reducescatter"):
            return ""
        # Sums of small floats are float32 ones, which are as good as those in a smaller type.
        is_small = dtype in _FLOATS_OF_AT_MOST_32_BITS and dtype != DataType.float32
        if is_small and accum_dtype in _FLOATS_OF_AT_MOST_32_BITS:
            return ""
        return (
            f"sums of {DataType(dtype).name} are not made in {DataType(accum_dtype).name}: "
            f"accum_dtype may be {'float32 or a smaller float' if is_small else 'no other type'}"
        )

    def _root(self, extras: Mapping[str, int], size: int) -> int:
        root = extras.get("root", 0) if "root" in self._extras else 0
        if not 0 <= root < size:
            raise ValueError(f"extras['root'] is {root}, which is no rank of {size}")
        return root

    def _refuse(self, why: str) -> int:
        if why not in self._told:
            self._told.add(why)
            warnings.warn(f"{self.name!r} was not executed: {why}", RuntimeWarning, stacklevel=3)
        return int(CommResult.COMM_INVALID_ARGUMENT)


def gpu_hints(collective: str, *algorithms: str) -> dict[str, str]:
    """Of GPUs: the first of the engine's algorithms that can serve a call. Their reductions are in
    the order of the ranks anyway."""
    # Of several names the engine takes the last one first.
    names = ",".join(f"{KINDS[collective]}={name}" for name in reversed(algorithms))
    return {"ctran::algorithm": names} if names else {}


def within(name: str, value: object, end: int) -> None:
    """Raises unless it is an integer from 0 to below `end`."""
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be an int, not {type(value).__name__}") from None
    if not 0 <= number < end:
        raise ValueError(f"{name} is {number}, but must be from 0 to {end - 1}")


def check_launch(nblocks: object, nthreads: object) -> None:
    """Raises unless a kernel can have so many thread blocks, and threads each."""
    within("nblocks", nblocks, 2**31)
    within("nthreads_per_block", nthreads, 2**31)


def checked_extras(extras: object) -> Mapping[str, int]:
    """Numbers of 64 bits by name; raises if it is something else."""
    if extras is None:
        return {}
    if not isinstance(extras, Mapping):
        raise TypeError(f"extras must be a dict of str to int, not {type(extras).__name__}")
    for name, value in extras.items():
        if not isinstance(name, str):
            raise TypeError(f"extras must be a dict of str to int, but has the key {name!r}")
        within(f"extras[{name!r}]", value, 2**64)
    return extras


def checked_communicator(comm: object) -> Communicator:
    """Raises TypeError unless it is one."""
    if not isinstance(comm, _runtime.Communicator):
        raise TypeError(
            f"comm must be a Communicator, as CommGroup.communicator is, not {type(comm).__name__}"
        )
    return comm


@dataclass
class CollectiveRequest:
    """What a selector chooses for."""

    world_size: int
    n_ranks_per_node: int
    rank: int
    input_buffer: int
    output_buffer: int
    message_size: int
    stream: int
    collective: str
    dtype: DataType
    hints: dict[str, list[int]] = field(default_factory=dict)

    def buffer_mode(self) -> CollectiveBufferMode:
        """Whether input and output are the same memory."""
        same = self.input_buffer == self.output_buffer
        return CollectiveBufferMode.IN_PLACE if same else CollectiveBufferMode.OUT_OF_PLACE


Selector = Callable[[dict[str, dict[str, Algorithm]], CollectiveRequest], "Algorithm | None"]


class AlgorithmCollection:
    """Algorithms by collective and name, in the order in which they came."""

    def __init__(
        self, selector: Selector | None = None, fallback_selector: Selector | None = None
    ) -> None:
        self._algorithms: dict[str, dict[str, Algorithm]] = {}
        self._selectors = [one for one in (selector, fallback_selector) if one is not None]

    def __iter__(self) -> Iterator[Algorithm]:
        for named in self._algorithms.values():
            yield from named.values()

    def __len__(self) -> int:
        return sum(len(named) for named in self._algorithms.values())

    def __getitem__(self, index: int) -> Algorithm:
        return list(self)[index]

    def __repr__(self) -> str:
        return f"<AlgorithmCollection {[algorithm.name for algorithm in self]}>"

    def get_by_collective(self, collective: str) -> list[Algorithm]:
        """Those of one collective."""
        return list(self._algorithms.get(collective, {}).values())

    def register_algorithm(self, collective: str, name: str, algorithm: Algorithm) -> None:
        """Adds one; one that had the name goes. Raises TypeError if it is no algorithm."""
        if not isinstance(algorithm, Algorithm):
            raise TypeError(f"{algorithm!r} is no Algorithm")
        self._algorithms.setdefault(collective, {})[name] = algorithm

    def to_dict(self) -> dict[str, dict[str, Algorithm]]:
        """By collective, then by name: what selectors get."""
        return {collective: dict(named) for collective, named in self._algorithms.items()}

    def select_algorithm(self, request: CollectiveRequest) -> Algorithm | None:
        """What the selector says, or else the fallback selector; None where neither knows. Raises
        TypeError if one says something else, ValueError if it is of another collective."""
        for selector in self._selectors:
            chosen = selector(self.to_dict(), request)
            if chosen is None:
                continue
            if not isinstance(chosen, Algorithm):
                raise TypeError(
                    f"the selector must return an Algorithm or None, not {type(chosen).__name__}"
                )
            if chosen.collective != request.collective:
                raise ValueError(
                    f"the selector was asked for {request.collective}, and returned {chosen!r}"
                )
            return chosen
        return None
