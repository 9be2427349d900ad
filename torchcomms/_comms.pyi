"""Communicators, works and options: the C++ part of torchcomms."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar, overload

import torch
from torch import Tensor
from torch._C._distributed_c10d import Backend, Store

class RedOpType:
    """The kind of a reduction."""

    SUM: ClassVar[RedOpType]
    PRODUCT: ClassVar[RedOpType]
    MIN: ClassVar[RedOpType]
    MAX: ClassVar[RedOpType]
    BAND: ClassVar[RedOpType]
    BOR: ClassVar[RedOpType]
    BXOR: ClassVar[RedOpType]
    PREMUL_SUM: ClassVar[RedOpType]
    AVG: ClassVar[RedOpType]
    __members__: ClassVar[dict[str, RedOpType]]
    def __init__(self, value: int) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...
    def __int__(self) -> int: ...
    def __index__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def __ne__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class ReduceOp:
    """A reduction: one of SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR, AVG, or PREMUL_SUM(factor)."""

    SUM: ClassVar[ReduceOp]
    PRODUCT: ClassVar[ReduceOp]
    MIN: ClassVar[ReduceOp]
    MAX: ClassVar[ReduceOp]
    BAND: ClassVar[ReduceOp]
    BOR: ClassVar[ReduceOp]
    BXOR: ClassVar[ReduceOp]
    AVG: ClassVar[ReduceOp]
    def __init__(self, type: RedOpType) -> None: ...
    @staticmethod
    def PREMUL_SUM(factor: float | Tensor) -> ReduceOp:
        """A sum in which every rank first multiplies its own contribution by its own factor: a
        number or a tensor of one element."""
    @property
    def type(self) -> RedOpType:
        """The kind of the reduction."""
    @property
    def factor(self) -> float | Tensor | None:
        """Of PREMUL_SUM, else None."""
    def __copy__(self) -> ReduceOp: ...
    def __deepcopy__(self, memo: dict[int, Any]) -> ReduceOp: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class OpName:
    """The operations of a communicator."""

    send: ClassVar[OpName]
    recv: ClassVar[OpName]
    broadcast: ClassVar[OpName]
    all_reduce: ClassVar[OpName]
    reduce: ClassVar[OpName]
    all_gather: ClassVar[OpName]
    all_gather_v: ClassVar[OpName]
    all_gather_single: ClassVar[OpName]
    reduce_scatter: ClassVar[OpName]
    reduce_scatter_v: ClassVar[OpName]
    reduce_scatter_single: ClassVar[OpName]
    all_to_all_single: ClassVar[OpName]
    all_to_all_v_single: ClassVar[OpName]
    all_to_all: ClassVar[OpName]
    barrier: ClassVar[OpName]
    scatter: ClassVar[OpName]
    gather: ClassVar[OpName]
    gather_single: ClassVar[OpName]
    batch_op_issue: ClassVar[OpName]
    split: ClassVar[OpName]
    new_window: ClassVar[OpName]
    finalize: ClassVar[OpName]
    __members__: ClassVar[dict[str, OpName]]
    def __init__(self, value: int) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...
    def __int__(self) -> int: ...
    def __index__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def __ne__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class WorkStatus:
    """How far an operation has come."""

    NOT_STARTED: ClassVar[WorkStatus]
    INPROGRESS: ClassVar[WorkStatus]
    COMPLETED: ClassVar[WorkStatus]
    TIMEDOUT: ClassVar[WorkStatus]
    ERROR: ClassVar[WorkStatus]
    __members__: ClassVar[dict[str, WorkStatus]]
    def __init__(self, value: int) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...
    def __int__(self) -> int: ...
    def __index__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def __ne__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class TorchWork:
    """One operation of a communicator. Usable from any thread."""

    @property
    def status(self) -> WorkStatus:
        """How far the operation has come; never blocks."""
    def is_completed(self) -> bool:
        """Whether the operation has ended, well or not; never blocks. After a failure wait()
        raises."""
    def wait(self, timeout: timedelta | None = None) -> bool:
        """Makes the result usable: on CPU blocks until the operation has ended.

        With `timeout` blocks at most so long, and returns False if the operation has not ended (it
        goes on); else returns True. Raises the error of a failed operation."""
    def wait_blocking(self) -> None:
        """Blocks until the operation has ended, on any device. Raises like wait()."""
    def exception(self) -> Exception | None:
        """The error of a failed operation, else None; never blocks."""

class CommOptions:
    """How a communicator is made.

    A new one has the defaults of the environment (TORCHCOMM_ABORT_ON_ERROR,
    TORCHCOMM_TIMEOUT_SECONDS)."""

    abort_process_on_timeout_or_error: bool
    """Whether an error that nobody is waiting for ends the process."""
    timeout: timedelta
    """Of the creation and, by default, of every operation."""
    store: Store | None
    """Through which the ranks find each other."""
    enable_reconfigure: bool
    is_high_priority_stream: bool
    hints: dict[str, str]
    """For the backend. A copy: assign to change it."""
    name: str
    rank: int | None
    """With `size`: the place of this process, instead of the environment's."""
    size: int | None
    def __init__(self) -> None: ...
    def __eq__(self, other: object) -> bool: ...

class OpOptions:
    """What the options of all operations have in common."""

    hints: dict[str, str]
    """For the backend. A copy: assign to change it."""
    @property
    def timeout(self) -> timedelta:
        """Zero is the communicator's; None sets it to zero."""
    @timeout.setter
    def timeout(self, value: timedelta | None, /) -> None: ...

class SendOptions(OpOptions):
    tag: int
    """A message goes to a receive of its tag."""
    def __init__(
        self,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        tag: int = 0,
    ) -> None: ...

class RecvOptions(OpOptions):
    tag: int
    """A message goes to a receive of its tag."""
    def __init__(
        self,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        tag: int = 0,
    ) -> None: ...

class BatchP2POptions(OpOptions):
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class BroadcastOptions(OpOptions):
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class AllReduceOptions(OpOptions):
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class ReduceOptions(OpOptions):
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class AllGatherOptions(OpOptions):
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class AllGatherSingleOptions(OpOptions):
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class ReduceScatterOptions(OpOptions):
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class ReduceScatterSingleOptions(OpOptions):
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class AllToAllOptions(OpOptions):
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class AllToAllSingleOptions(OpOptions):
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class AllToAllvSingleOptions(OpOptions):
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class BarrierOptions(OpOptions):
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class ScatterOptions(OpOptions):
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class GatherOptions(OpOptions):
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class GatherSingleOptions(OpOptions):
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class P2POpType:
    """The direction of a P2POp."""

    SEND: ClassVar[P2POpType]
    RECV: ClassVar[P2POpType]
    __members__: ClassVar[dict[str, P2POpType]]
    def __init__(self, value: int) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...
    def __int__(self) -> int: ...
    def __index__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def __ne__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class P2POp:
    """One send or receive of a batch."""

    type: P2POpType
    tensor: Tensor
    peer: int
    tag: int
    """A message goes to a receive of its tag."""
    def __init__(self, type: P2POpType, tensor: Tensor, peer: int, tag: int = 0) -> None: ...

class BatchSendRecv:
    """Sends and receives that are issued together, so that none waits for another."""

    ops: list[P2POp]
    """What has been added. A copy: assign to change it."""
    def send(self, tensor: Tensor, dst: int, tag: int = 0) -> None:
        """Adds a send of `tensor` to rank `dst`."""
    def recv(self, tensor: Tensor, src: int, tag: int = 0) -> None:
        """Adds a receive into `tensor` of what rank `src` sends."""
    def issue(self, async_op: bool, options: BatchP2POptions | None = None) -> TorchWork:
        """Issues what has been added; the list is kept, so that a second call exchanges again."""

class TorchCommBackend:
    """What carries out the operations of a communicator.

    Subclasses, made known by register_backend(), define init(device, name, options), finalize(),
    split(ranks, name, options) and the operations of TorchComm, with its arguments in its order; of
    `options`, `hints` and `timeout` those that they have parameters for. An operation returns None
    when it has ended, a TorchWork, or an object with wait()."""

    def __init__(self) -> None: ...
    def get_rank(self) -> int: ...
    def get_size(self) -> int: ...
    def get_comm_name(self) -> str: ...
    def get_backend_name(self) -> str: ...
    def get_backend_version(self) -> str: ...
    def get_options(self) -> CommOptions: ...
    def get_device(self) -> torch.device: ...

class TorchComm:
    """A group of ranks and the operations among them.

    All ranks call the same operations in the same order, unless one names a peer. Tensors are
    dense, contiguous, and on the communicator's device. With async_op=False an operation on CPU
    tensors has ended when it returns; with async_op=True it goes on while the program does, until
    the work's wait(). Errors are torchcomms.CommError and its descendants.

    `hints` are for the backend; a `timeout` of None is the communicator's; `options` holds both.

    One thread at a time, but for abort(), is_aborted() and works.
    """

    def finalize(self) -> None:
        """Waits for everything issued, then leaves. Every later operation raises."""
    def get_rank(self) -> int:
        """The rank of this process, from 0."""
    def get_size(self) -> int:
        """The number of ranks."""
    def get_name(self) -> str:
        """The name of the communicator."""
    def get_ranks(self) -> list[int]:
        """The members, as ranks of the communicator that new_comm() made."""
    def get_device(self) -> torch.device:
        """The device of its tensors."""
    def get_backend(self) -> str:
        """The name of the backend."""
    def get_backend_version(self) -> str:
        """The version of the backend."""
    def get_options(self) -> CommOptions:
        """A copy of the options in force."""
    def get_backend_impl(self) -> TorchCommBackend:
        """The backend."""
    def unsafe_get_backend(self) -> TorchCommBackend:
        """Deprecated: get_backend_impl()."""
    def batch_op_create(self) -> BatchSendRecv:
        """An empty batch."""
    def split(
        self,
        ranks: Sequence[int] | Sequence[Sequence[int]] | None = None,
        name: str = "",
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        rank_groups: Sequence[int] | Sequence[Sequence[int]] | None = None,
    ) -> TorchComm | None:
        """A communicator of the listed ranks of this one, in that order, with this one's options.

        None on ranks that join none. Collective over all ranks of this one: members of a group pass
        the same `ranks`, others []. Or all pass `rank_groups`, a list of such lists."""
    def abort(self) -> None:
        """Ends every blocked and every later operation of all ranks with AbortedError. Any
        thread."""
    def is_abort_supported(self) -> bool: ...
    def is_aborted(self) -> bool:
        """Whether the communicator is broken: aborted, timed out, a peer lost. Any thread."""
    def set_timeout(self, timeout: timedelta) -> None:
        """Of operations from now on."""
    def set_hints(self, hints: dict[str, str]) -> None:
        """Of operations from now on."""
    def __copy__(self) -> TorchComm: ...
    def __deepcopy__(self, memo: dict[int, Any]) -> TorchComm: ...
    def send(
        self,
        tensor: Tensor,
        dst: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: SendOptions | None = None,
    ) -> TorchWork:
        """Sends `tensor` to rank `dst`."""
    def recv(
        self,
        tensor: Tensor,
        src: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: RecvOptions | None = None,
    ) -> TorchWork:
        """Receives into `tensor` what rank `src` sends."""
    def broadcast(
        self,
        tensor: Tensor,
        root: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: BroadcastOptions | None = None,
    ) -> TorchWork:
        """`tensor` of rank `root` becomes that of every rank."""
    def all_reduce(
        self,
        tensor: Tensor,
        op: ReduceOp,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: AllReduceOptions | None = None,
    ) -> TorchWork:
        """`tensor` becomes the reduction over all ranks, the same bits on each."""
    def reduce(
        self,
        tensor: Tensor,
        root: int,
        op: ReduceOp,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: ReduceOptions | None = None,
    ) -> TorchWork:
        """At rank `root`, `tensor` becomes the reduction over all ranks; elsewhere it is only
        read."""
    def all_gather(
        self,
        tensor_list: Sequence[Tensor],
        tensor: Tensor,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: AllGatherOptions | None = None,
    ) -> TorchWork:
        """`tensor_list[r]` becomes `tensor` of rank r; all have the same size."""
    def all_gather_v(
        self,
        tensor_list: Sequence[Tensor],
        tensor: Tensor,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: AllGatherOptions | None = None,
    ) -> TorchWork:
        """`tensor_list[r]` becomes `tensor` of rank r; sizes may differ from rank to rank."""
    def all_gather_single(
        self,
        output: Tensor,
        input: Tensor,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: AllGatherSingleOptions | None = None,
    ) -> TorchWork:
        """Part r of `output` becomes `input` of rank r.

        `output` has comm_size times the elements; in place, `input` is part `rank` of it."""
    def reduce_scatter(
        self,
        output: Tensor,
        input_list: Sequence[Tensor],
        op: ReduceOp,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: ReduceScatterOptions | None = None,
    ) -> TorchWork:
        """`output` becomes the reduction over all ranks of their `input_list[rank]`."""
    def reduce_scatter_v(
        self,
        output: Tensor,
        input_list: Sequence[Tensor],
        op: ReduceOp,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: ReduceScatterOptions | None = None,
    ) -> TorchWork:
        """As reduce_scatter; sizes may differ from rank to rank."""
    def reduce_scatter_single(
        self,
        output: Tensor,
        input: Tensor,
        op: ReduceOp,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: ReduceScatterSingleOptions | None = None,
    ) -> TorchWork:
        """`output` becomes the reduction over all ranks of part `rank` of their `input`, which has
        comm_size times the elements."""
    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: AllToAllSingleOptions | None = None,
    ) -> TorchWork:
        """Part r of `output` becomes part `rank` of `input` of rank r."""
    @overload
    def all_to_all_v_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: AllToAllvSingleOptions | None = None,
    ) -> TorchWork:
        """As all_to_all_single with parts of given sizes, in rows of dimension 0."""
    @overload
    def all_to_all_v_single(
        self,
        output: Tensor,
        input: Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: AllToAllvSingleOptions | None = None,
    ) -> TorchWork: ...
    @overload
    def all_to_all(
        self,
        output_tensor_list: Sequence[Tensor],
        input_tensor_list: Sequence[Tensor],
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: AllToAllOptions | None = None,
    ) -> TorchWork:
        """`output_tensor_list[r]` becomes `input_tensor_list[rank]` of rank r."""
    @overload
    def all_to_all(
        self,
        output_list: Sequence[Tensor],
        input_list: Sequence[Tensor],
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: AllToAllOptions | None = None,
    ) -> TorchWork: ...
    def barrier(
        self,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: BarrierOptions | None = None,
    ) -> TorchWork:
        """Ends when every rank has called it."""
    @overload
    def scatter(
        self,
        output_tensor: Tensor,
        input_tensor_list: Sequence[Tensor] | None,
        root: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: ScatterOptions | None = None,
    ) -> TorchWork:
        """`output_tensor` becomes `input_tensor_list[rank]` of rank `root`; the list matters there
        alone."""
    @overload
    def scatter(
        self,
        output: Tensor,
        input_list: Sequence[Tensor] | None,
        root: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: ScatterOptions | None = None,
    ) -> TorchWork: ...
    @overload
    def gather(
        self,
        output_tensor_list: Sequence[Tensor] | None,
        input_tensor: Tensor,
        root: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: GatherOptions | None = None,
    ) -> TorchWork:
        """At rank `root`, `output_tensor_list[r]` becomes `input_tensor` of rank r.

        The list matters there alone."""
    @overload
    def gather(
        self,
        output_list: Sequence[Tensor] | None,
        input: Tensor,
        root: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: GatherOptions | None = None,
    ) -> TorchWork: ...
    def gather_single(
        self,
        output: Tensor,
        input: Tensor,
        root: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: GatherSingleOptions | None = None,
    ) -> TorchWork:
        """At rank `root`, part r of `output` becomes `input` of rank r."""

class _BackendWrapper(Backend):
    """A TorchComm as a backend of torch.distributed, for a device of a ProcessGroup.

    Several threads may use it at the same time."""

    def __init__(self, comm: TorchComm) -> None: ...
    def get_comm(self) -> TorchComm:
        """The communicator."""
    def perform_nocolor_split(self, device: object) -> None:
        """Nothing: new groups make communicators of their own, without the parent's other ranks."""

def new_comm(
    backend: str,
    device: torch.device,
    name: str | None = None,
    options: CommOptions | None = None,
    abort_process_on_timeout_or_error: bool | None = None,
    timeout: timedelta | None = None,
    is_high_priority_stream: bool | None = None,
    store: Store | None = None,
    enable_reconfigure: bool = False,
    hints: dict[str, str] | None = None,
) -> TorchComm:
    """Makes a communicator: collective over its ranks.

    Args:
        backend: its name; torchcomms.built_backends() lists them.
        device: the device of its tensors.
        name: the same on every rank.
        options: of which the arguments that follow override parts.
        abort_process_on_timeout_or_error: whether an error that nobody is waiting for ends the
            process.
        timeout: of the creation and, by default, of operations.
        store: through which the ranks find each other; without one, what started the process is
            recognised (torchrun, MPI, Slurm, TORCHCOMM_RANK and TORCHCOMM_SIZE), else the
            communicator has one rank.
        hints: for the backend.

    Raises:
        CommError: no such backend, or the ranks did not come together.
    """

def _is_backend_registered(backend: str) -> bool:
    """Whether new_comm() can make this backend as things are."""

def _load_plugin(backend: str) -> bool:
    """Loads the backend from the library that TORCHCOMMS_BACKEND_LIB_PATH_<NAME> names; False if it
    names none."""

def register_backend(name: str, cls: type[TorchCommBackend]) -> None:
    """Makes the subclass `cls` of TorchCommBackend the backend `name` of new_comm(). Raises
    ValueError if there is one of that name."""

def _registered_backends() -> list[str]:
    """The names that _is_backend_registered() knows."""

def _retire() -> None:
    """Ends what the process does in the background; the interpreter is about to go."""
