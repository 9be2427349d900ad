"""Communicators, works and options: the C++ part of torchcomms."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, overload

import torch
from torch import Tensor
from torch._C._distributed_c10d import Backend, Store

from torchcomms.select import Explanation

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
    def __getstate__(self) -> tuple[RedOpType, float | Tensor | None]: ...
    def __setstate__(self, state: tuple[RedOpType, float | Tensor | None]) -> None: ...
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
    reduce_scatter_quantized: ClassVar[OpName]
    all_to_all_single: ClassVar[OpName]
    all_to_all_v_single: ClassVar[OpName]
    all_to_all: ClassVar[OpName]
    barrier: ClassVar[OpName]
    scatter: ClassVar[OpName]
    gather: ClassVar[OpName]
    gather_single: ClassVar[OpName]
    all_to_all_v_dynamic: ClassVar[OpName]
    device_alltoallv_single: ClassVar[OpName]
    alltoallv_dynamic_dispatch: ClassVar[OpName]
    alltoallv_dynamic_combine: ClassVar[OpName]
    all_to_all_v_dedup: ClassVar[OpName]
    all_to_all_v_dedup_combine: ClassVar[OpName]
    batch_op_issue: ClassVar[OpName]
    split: ClassVar[OpName]
    new_window: ClassVar[OpName]
    finalize: ClassVar[OpName]
    reconfigure: ClassVar[OpName]
    put: ClassVar[OpName]
    get: ClassVar[OpName]
    flush: ClassVar[OpName]
    signal: ClassVar[OpName]
    wait_signal: ClassVar[OpName]
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

class SignalCmpOp:
    """How wait_signal() compares: signal <op> value."""

    EQ: ClassVar[SignalCmpOp]
    NE: ClassVar[SignalCmpOp]
    LT: ClassVar[SignalCmpOp]
    LE: ClassVar[SignalCmpOp]
    GT: ClassVar[SignalCmpOp]
    GE: ClassVar[SignalCmpOp]
    __members__: ClassVar[dict[str, SignalCmpOp]]
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

class TorchCommWinAccessType:
    """Whether a rank's memory can be mapped (UNIFIED), or only reached by operations (SEPARATE)."""

    WIN_ACCESS_TYPE_UNIFIED: ClassVar[TorchCommWinAccessType]
    WIN_ACCESS_TYPE_SEPARATE: ClassVar[TorchCommWinAccessType]
    __members__: ClassVar[dict[str, TorchCommWinAccessType]]
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

class TorchCommWindowAttr:
    """What get_attr() returns."""

    @property
    def access_type(self) -> TorchCommWinAccessType:
        """A TorchCommWinAccessType."""

class TorchCommWindow:
    """Memory that every rank of a communicator exposes to the others, who read and write it without
    its owner taking part, and signals with which they tell each other that they did.

    Operations to one rank take effect there in the order of the calls: whoever has waited for a
    signal sees everything that its sender put there before. Offsets count elements of the tensor
    that is moved, and are checked against the target's memory at the call."""

    def tensor_register(self, tensor: Tensor, owning: bool = True) -> None:
        """Exposes a contiguous tensor: collective; the tensors of the ranks may differ.

        owning: the window holds the tensor, otherwise the caller does until tensor_deregister()."""
    def tensor_deregister(self) -> None:
        """Collective: afterwards nobody touches the tensor."""
    @overload
    def put(
        self,
        tensor: Tensor,
        dst_rank: int,
        target_offset_nelems: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Writes a contiguous tensor into the memory of rank `dst_rank`, from element
        `target_offset_nelems` on, counted in elements of `tensor`.

        With async_op=False `tensor` may be changed when the call returns. Raises CommError when the
        range is not inside that memory; nothing is written then."""
    @overload
    def put(
        self,
        tensor: Tensor,
        dst_rank: int,
        target_disp: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Writes a contiguous tensor into the memory of rank `dst_rank`, from element
        `target_disp` on, counted in elements of `tensor`.

        With async_op=False `tensor` may be changed when the call returns. Raises CommError when the
        range is not inside that memory; nothing is written then."""
    @overload
    def put(
        self,
        tensor: Tensor,
        dst_rank: int,
        offset: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Writes a contiguous tensor into the memory of rank `dst_rank`, from element
        `offset` on, counted in elements of `tensor`.

        With async_op=False `tensor` may be changed when the call returns. Raises CommError when the
        range is not inside that memory; nothing is written then."""
    def get(
        self,
        tensor: Tensor,
        src_rank: int,
        source_offset_nelems: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Reads a contiguous tensor from the memory of rank `src_rank`, from element
        `source_offset_nelems` on, counted in elements of `tensor`.

        Sees what this rank put there before. Raises CommError when the range is not inside that
        memory."""
    def flush(
        self,
        dst_rank: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Ends when everything that was put to rank `dst_rank` before is visible there."""
    @overload
    def signal(
        self,
        peer_rank: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Counts one signal of this rank at rank `peer_rank`, whose wait_signal() takes it."""
    @overload
    def signal(
        self,
        dst_rank: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """The same."""
    @overload
    def signal(
        self,
        signal_disp: int,
        signal_val: int,
        dst_rank: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Sets signal number `signal_disp` of rank `dst_rank` to `signal_val`, of 64 bits."""
    @overload
    def wait_signal(
        self,
        peer_rank: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Waits for one more signal of rank `peer_rank` than was waited for before."""
    @overload
    def wait_signal(
        self,
        signal_disp: int,
        signal_val: int,
        cmp_op: SignalCmpOp,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Waits until signal number `signal_disp` of this rank compares so with `signal_val`."""
    def map_remote_tensor(self, rank: int) -> Tensor:
        """The registered tensor of that rank, without a copy.

        Of this rank's dtype, and of its shape where it has as many bytes, else flat. It may outlive
        the window. Raises CommError where get_attr() says SEPARATE."""
    def get_tensor(
        self,
        rank: int | None = None,
        sizes: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
        offset: int = 0,
    ) -> Tensor | None:
        """A view of the memory of `rank`, without a copy, from element `offset` of `dtype` on.

        It is contiguous, and may outlive the window. Without `sizes`: all that follows. Without a
        rank: the registered tensor, None if the window does not hold it. Raises CommError where
        get_attr() says SEPARATE, or when the view is not inside that memory."""
    def get_device_window(
        self, signal_count: int = -1, counter_count: int = -1, barrier_count: int = 1
    ) -> int:
        """The address of the window for CUDA kernels: a torchcomms::device::TorchCommDeviceWindow,
        of comms/torchcomms/device/TorchCommDeviceWindow.hpp.

        It has so many signals, counters and barriers, all 0; -1: as many as ranks. Collective, with
        the same counts on all ranks. Later calls with the same counts return the same address, and
        are local. The address is good until tensor_deregister(), which waits for all that the GPU
        runs.

        A wait of a kernel ends by the timeout that the communicator has now, by abort(), or when
        the communicator fails. An argument out of range writes nothing, and ends all waits. The
        communicator has failed then, and raises an error that names the rank.

        Raises CommError where the window's memory is not of GPUs of one host, where the ranks'
        counts differ, or where a link between GPUs is not known to carry atomic operations."""
    def register_local_buffer(self, tensor: Tensor) -> int:
        """The address of a torchcomms::device::RegisteredBuffer, from which kernels put: a
        contiguous tensor on the window's device.

        Local. The window holds the tensor until deregister_local_buffer(), or
        tensor_deregister()."""
    def deregister_local_buffer(self, handle: int) -> None:
        """Lets go of the tensor of register_local_buffer(). Kernels that use the handle have to
        have ended. Raises CommError for another number."""
    def get_nvlink_address(self, peer: int) -> int:
        """The address at which this rank's GPU loads from and stores to the memory of rank `peer`,
        until tensor_deregister(). Raises CommError where the window's memory is not of GPUs."""
    def get_multimem_address(self) -> int:
        """Raises CommError: NVLink multicast is not used."""
    def __copy__(self) -> TorchCommWindow: ...
    def __deepcopy__(self, memo: dict[int, Any]) -> TorchCommWindow: ...
    def get_attr(self, peer_rank: int) -> TorchCommWindowAttr:
        """How the memory of that rank is reached."""
    def get_size(self) -> int:
        """Bytes that this rank exposes."""
    def get_device(self) -> torch.device:
        """The device of the memory."""
    @property
    def device(self) -> torch.device:
        """get_device()."""
    @property
    def dtype(self) -> torch.dtype:
        """Of the registered tensor."""
    @property
    def shape(self) -> torch.Size:
        """Of the registered tensor."""

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
    def _set_status(self, status: WorkStatus) -> None:
        """What `status` and is_completed() say from now on, whatever becomes of the operation: for
        tests of what looks at works."""
    def exception(self) -> Exception | None:
        """The error of a failed operation, else None; never blocks."""
    def add_done_callback(self, callback: Callable[[TorchWork], object]) -> None:
        """Calls `callback(work)` when the operation ends, well or not, at once if it has.

        On any thread; it must not wait. What it raises goes to sys.unraisablehook."""
    def register_start_hook(self, callback: Callable[[], object]) -> None:
        """Calls `callback()` when the operation starts, at once if it has.

        On any thread; it must not wait. What it raises goes to sys.unraisablehook."""
    def register_end_hook(self, callback: Callable[[], object]) -> None:
        """Calls `callback()` when the operation ends, well or not, at once if it has.

        On any thread; it must not wait. What it raises goes to sys.unraisablehook."""
    def register_wait_pre_hook(self, callback: Callable[[], object]) -> None:
        """Calls `callback()` before every wait for the operation.

        What it raises, the wait raises. A work of async_op=False takes no hooks of waits, but in a
        post-hook: it stands for every operation that had ended when its call returned."""
    def register_wait_post_hook(self, callback: Callable[[], object]) -> None:
        """As register_wait_pre_hook, after every wait that found that the operation has
        succeeded."""

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
    """No members until the first reconfigure()."""
    is_high_priority_stream: bool
    """On a GPU: of the communicator's own stream."""
    high_priority_stream: bool
    """Another name of is_high_priority_stream."""
    hints: dict[str, str]
    """For the backend. A copy: assign to change it."""
    name: str
    """The same on every rank."""
    rank: int | None
    """With `size`: the place of this process, instead of the environment's."""
    size: int | None
    """The number of ranks, with `rank`."""
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
    """Options of send."""

    tag: int
    """A message goes to a receive of its tag."""
    def __init__(
        self,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        tag: int = 0,
    ) -> None: ...

class RecvOptions(OpOptions):
    """Options of recv."""

    tag: int
    """A message goes to a receive of its tag."""
    def __init__(
        self,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        tag: int = 0,
    ) -> None: ...

class BatchP2POptions(OpOptions):
    """Options of BatchSendRecv.issue."""
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class BroadcastOptions(OpOptions):
    """Options of broadcast."""
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class AllReduceOptions(OpOptions):
    """Options of all_reduce."""
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class ReduceOptions(OpOptions):
    """Options of reduce."""
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class AllGatherOptions(OpOptions):
    """Options of all_gather and all_gather_v."""
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class AllGatherSingleOptions(OpOptions):
    """Options of all_gather_single."""
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class ReduceScatterOptions(OpOptions):
    """Options of reduce_scatter and reduce_scatter_v."""
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class ReduceScatterSingleOptions(OpOptions):
    """Options of reduce_scatter_single and reduce_scatter_quantized."""
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class AllToAllOptions(OpOptions):
    """Options of all_to_all."""
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class AllToAllSingleOptions(OpOptions):
    """Options of all_to_all_single."""
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class AllToAllvSingleOptions(OpOptions):
    """Options of all_to_all_v_single, and of exchanges whose sizes stand in tensors."""
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class BarrierOptions(OpOptions):
    """Options of barrier."""
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class ScatterOptions(OpOptions):
    """Options of scatter."""
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class GatherOptions(OpOptions):
    """Options of gather."""
    def __init__(
        self, hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> None: ...

class GatherSingleOptions(OpOptions):
    """Options of gather_single."""
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
    """Its direction."""
    tensor: Tensor
    """What is sent, or received into."""
    peer: int
    """The other rank."""
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
    def get_rank(self) -> int:
        """The rank of this process."""
    def get_size(self) -> int:
        """The number of ranks."""
    def get_comm_name(self) -> str:
        """The name of the communicator."""
    def get_backend_name(self) -> str:
        """As in new_comm()."""
    def get_backend_version(self) -> str:
        """Raises CommError where it has none."""
    def get_options(self) -> CommOptions:
        """A copy of the CommOptions in force."""
    def get_device(self) -> torch.device:
        """The torch.device of its tensors."""

class TorchComm:
    """A group of ranks and the operations among them.

    All ranks call the same operations in the same order, unless one names a peer. Tensors are
    dense, contiguous, and on the communicator's device; of any shape, of which only the number of
    elements counts. With async_op=False an operation on CPU tensors has ended when it returns; with
    async_op=True it goes on while the program does, until the work's wait(). Only outputs are
    written.

    `hints` are for the backend; a `timeout` of None is the communicator's; `options` holds both.

    Arguments that make no sense raise CommError, ValueError or TypeError before anything is sent.
    CommTimeoutError, PeerLostError, MismatchError and AbortedError break the communicator: every
    later operation raises the same, on every rank.

    One thread at a time, but for abort(), is_aborted() and works.
    """

    def finalize(self) -> None:
        """Waits for everything issued, then leaves. Every later operation raises."""
    def get_rank(self) -> int:
        """The rank of this process, from 0."""
    def get_size(self) -> int:
        """The number of ranks."""
    def explain(
        self,
        op: str,
        nbytes: int,
        dtype: torch.dtype | None = None,
        hints: Mapping[str, str] | None = None,
    ) -> Explanation:
        """What would run if the ranks called `op` now, why, and what else there is.

        Args:
            op: the name of a collective, such as ``"all_reduce"``.
            nbytes: bytes that each rank contributes: its tensor; of reduce_scatter, scatter and
                all_to_all all of its blocks.
            dtype: on the CPUs of one host it matters to native algorithms of mscclpp alone; between
                hosts, floats of 16 and 8 bits are not reduced by way of partial sums; on GPUs,
                packets hold no complex128.
            hints: of the call, as the operation would get them.
        """
    def prepare(
        self,
        op: str,
        nbytes: int,
        dtype: torch.dtype | None = None,
        reduction: ReduceOp | None = None,
        hints: Mapping[str, str] | None = None,
    ) -> None:
        """Does now what the first such call on GPUs would: compiles, loads, allocates. Collective.

        Args:
            op: the name of a collective, such as ``"all_reduce"``.
            nbytes: bytes that each rank contributes, as in `explain`.
            dtype: of the tensors; of reductions. Default float32.
            reduction: of reductions. Default a sum.
            hints: of the call, as the operation would get them.
        """
    def tune(
        self, seconds: float = 30, progress: Callable[[float, str], None] | None = None
    ) -> Path:
        """Measures the algorithms of every collective and uses the fastest from now on.

        Collective. Rank 0 keeps the result in CTRAN_TUNING_DIR, where later communicators of as
        many ranks, spread over as many hosts, find it.

        Args:
            seconds: about how long it takes.
            progress: called on each rank with how much is done, from 0 to 1, and what is next.
        """
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
    @property
    def _engine_token(self) -> int: ...
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
    def new_window(self, tensor: Tensor | None = None) -> TorchCommWindow:
        """A window onto `tensor`: collective. Without one nothing is exposed until its
        tensor_register()."""
    def window_allocate(
        self, window_size: int, cpu_buf: bool = False, signal_size: int | None = None
    ) -> TorchCommWindow:
        """A window onto `window_size` bytes of fresh memory per rank, zeros, that the others map.

        Collective. signal_size: bytes of signals, eight per signal; by default 64 signals.
        cpu_buf: memory of the host, whatever the device."""
    def abort(self) -> None:
        """Ends every blocked and every later operation of all ranks with AbortedError. Any
        thread."""
    def is_abort_supported(self) -> bool:
        """Whether the backend has abort()."""
    def is_aborted(self) -> bool:
        """Whether the communicator is broken: aborted, timed out, a peer lost. Any thread."""
    def _is_finalized(self) -> bool:
        """Whether finalize() has been called."""
    def set_timeout(self, timeout: timedelta) -> None:
        """Of operations from now on."""
    def set_hints(self, hints: dict[str, str]) -> None:
        """Of operations from now on."""
    def dup(
        self, name: str = "", hints: dict[str, str] | None = None, timeout: timedelta | None = None
    ) -> TorchComm:
        """A communicator of the same ranks with this one's options: collective over them."""
    def get_init_handle(self) -> str:
        """What names this process and, with enable_reconfigure=True, says how others reach it: for
        reconfigure()."""
    def reconfigure(
        self,
        uuid: str | int,
        init_handles: Sequence[str] | AbstractSet[str],
        timeout: timedelta | None = None,
        hints: dict[str, str] | None = None,
    ) -> TorchWork:
        """From now on the communicator consists of the processes of `init_handles`.

        Collective over them. A broken communicator works again; what was in flight fails. When it
        raises, the communicator is as before.

        Args:
            uuid: the same on all members, and a new one each time.
            init_handles: what get_init_handle() returned on every member, this one included. In a
                list, rank r is the process of init_handles[r]; a set leaves the order to the
                backend.
            timeout: by default the communicator's."""
    def tensor_register(self, tensor: Tensor) -> None:
        """Says that the memory of a contiguous tensor will be used again and again.

        The communicator holds it until tensor_deregister(). Raises if it is registered."""
    def tensor_deregister(self, tensor: Tensor) -> None:
        """Takes that back. Raises if it is not registered."""
    def all_gather_p_init(
        self,
        output: Tensor,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> PersistentAllGather:
        """Prepares an all-gather into `output` that will be carried out again and again.

        `output` has comm_size parts of equal size. The handle holds it until all_gather_p_free().
        Collective on GPUs, of backends ctran and ncclx: where the output of every rank is symmetric
        memory, copy engines may then write it. Raises CommError where all_gather_single() would
        refuse `output`.

        Args:
            timeout: of that; by default the communicator's."""
    def all_gather_p_exec(
        self,
        handle: PersistentAllGather,
        input: Tensor,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Part r of the handle's output becomes `input` of rank r, as by all_gather_single()."""
    def all_gather_p_free(self, handle: PersistentAllGather) -> None:
        """Lets go of the output: when all ranks have made their last call.

        Raises CommError if that has happened already."""
    def all_to_all_p_init(
        self,
        output: Tensor,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> PersistentAllToAll:
        """Prepares an all-to-all into `output` that will be carried out again and again.

        `output` has comm_size parts of equal size. The handle holds it until all_to_all_p_free().
        Collective on GPUs, of backends ctran and ncclx: where the output of every rank is symmetric
        memory, copy engines may then write it. Raises CommError where all_to_all_single() would
        refuse `output`.

        Args:
            timeout: of that; by default the communicator's."""
    def all_to_all_p_exec(
        self,
        handle: PersistentAllToAll,
        input: Tensor,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Part r of the handle's output becomes part `rank` of `input` of rank r.

        As by all_to_all_single(). With `async_op` several may be in flight; they end in order, and
        each overwrites the output of the one before."""
    def all_to_all_p_free(self, handle: PersistentAllToAll) -> None:
        """Lets go of the output: when all ranks have made their last call.

        Raises CommError if that has happened already."""
    def get_mem_allocator(self) -> Any:
        """The MemAllocator of the backend. Raises CommError if it has none.

        On CUDA devices, what torch.cuda.MemPool takes, a torch._C._cuda_CUDAAllocator: of ctran
        and ncclx, symmetric memory."""
    @property
    def mem_allocator(self) -> Any:
        """get_mem_allocator()."""
    def register_pre_hook(
        self, callback: Callable[[OpName, int, _PreHookArgs], object]
    ) -> RemovableHandle:
        """Calls `callback(name, op_id, args)` before every operation.

        That is when its arguments have been checked. `op_id` counts the operations of the process.
        What the hook raises ends the call: nothing has been sent. Hooks are called in the order of
        their registration, until the handle removes them or the communicator is finalized."""
    def register_post_hook(
        self, callback: Callable[[int, _PostHookArgs], object]
    ) -> RemovableHandle:
        """Calls `callback(op_id, args)` when an operation has been issued.

        With async_op=False that is when it has ended. Not after one that has raised."""
    def register_abort_hook(self, callback: Callable[[], object]) -> RemovableHandle:
        """Calls `callback()` once, when this rank learns that the communicator is broken.

        That is at abort(), when an operation has failed, or before the process ends for an error
        that nobody looked at. On any thread."""
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
        """Sends `tensor` to rank `dst`, whose recv() has as many elements of the same dtype.

        On CPUs, messages of one pair of ranks, direction and tag keep their order. On GPUs those
        of a pair match in the order of the calls, behind all operations before them; messages that
        cross belong into a batch. A small one may end before it is received, a large one does
        not."""
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
        """Receives into `tensor` what rank `src` sends: as many elements of the same dtype.

        Raises MismatchError when something else arrives."""
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
        """`tensor` of rank `root` becomes that of every rank: as many elements everywhere."""
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
        """`tensor` becomes the reduction over all ranks, element by element, the same bits on each.

        Raises CommError where `op` means nothing for the dtype (docs/reductions.md)."""
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
        """At rank `root`, `tensor` becomes the reduction over all ranks, element by element;
        elsewhere it is only read.

        Raises CommError where `op` means nothing for the dtype (docs/reductions.md)."""
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
        """`tensor_list[r]` becomes `tensor` of rank r.

        The list has comm_size tensors, each of as many elements as `tensor`."""
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
        """`tensor_list[r]` becomes `tensor` of rank r; sizes may differ from rank to rank.

        The list has comm_size tensors, tensor r of as many elements as `tensor` of rank r has."""
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
        """`output` becomes the reduction over all ranks of their `input_list[rank]`.

        The list has comm_size tensors, each of as many elements as `output`; in place,
        `output` is `input_list[rank]`."""
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
        """As reduce_scatter; tensor r of every list has as many elements as `output` of rank r."""
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
    @overload
    def reduce_scatter_quantized(
        self,
        output: Tensor,
        input: Tensor,
        op: ReduceOp,
        seed: Tensor | None,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: ReduceScatterSingleOptions | None = None,
    ) -> TorchWork:
        """As reduce_scatter_single, a SUM or AVG of float32 tensors, but what ranks send each other
        is bfloat16, rounded up or down at random so that its expected value is what it was: half
        the bytes. The same `seed`, an int64 tensor of one element on the communicator's device or
        on the CPU, gives the same bits; ranks may pass different ones: each rounds what it sends.
        None, or no seed (then `async_op` is passed by name): drawn at the call from torch's
        generator of the CPU, so every call rounds otherwise, and every replay of a captured one the
        same. Backends ctran and ncclx, on GPUs."""
    @overload
    def reduce_scatter_quantized(
        self,
        output: Tensor,
        input: Tensor,
        op: ReduceOp,
        *,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        options: ReduceScatterSingleOptions | None = None,
    ) -> TorchWork: ...
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
        """Part r of `output` becomes part `rank` of `input` of rank r.

        Both have as many elements, a multiple of comm_size: parts are equal. They may be the same
        tensor."""
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
        """As all_to_all_single with parts of given sizes, in rows of dimension 0.

        Both lists have comm_size entries. Input part r has as many elements as the output part for
        this rank has at rank r. Raises ValueError or CommError when they do not fit the tensors,
        MismatchError when they do not fit each other."""
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
    def all_to_all_v_dynamic(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Tensor,
        input_split_sizes: Tensor,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: AllToAllvSingleOptions | None = None,
    ) -> TorchWork:
        """As all_to_all_v_single(), where only the senders know the sizes.

        Sizes are int64 tensors of comm_size elements on the communicator's device. Those of the
        input are read when the operation starts, so an operation issued before it may write them.

        Args:
            output: receives all rows that are sent here, in the order of the senders; as large as
                what may come at most. What is behind them is not touched.
            input: rows of dimension 0, as large as those of `output`; shares no memory with it.
            output_split_sizes: element r becomes the number of rows that came from rank r.
            input_split_sizes: element r is the number of rows that go to rank r, one part after
                another.

        Raises:
            CommError: the sizes make no sense on this rank; nothing was sent.
            MismatchError: more comes than fits; it names who sends too much, and breaks the
                communicator. Nothing was written."""
    @overload
    def device_alltoallv_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Tensor,
        input_split_sizes: Tensor,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: AllToAllvSingleOptions | None = None,
    ) -> TorchWork:
        """As all_to_all_v_single(), with sizes in int64 tensors on the communicator's device.

        They are read when the operation starts: after those issued before it, which may write
        them. Also spelt `output_split_sizes_gpu`, `input_split_sizes_gpu`."""
    @overload
    def device_alltoallv_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes_gpu: Tensor,
        input_split_sizes_gpu: Tensor,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: AllToAllvSingleOptions | None = None,
    ) -> TorchWork: ...
    def alltoallv_dynamic_dispatch(
        self,
        output_tensor_list: list[Tensor],
        output_chunk_sizes_per_rank: Tensor,
        input_tensor: Tensor,
        input_chunk_sizes: Tensor,
        input_chunk_indices: Tensor,
        input_chunk_count_per_rank: Tensor,
        hidden_dim: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: AllToAllvSingleOptions | None = None,
    ) -> TorchWork:
        """Sends each rank the chunks of `input_tensor` that are listed for it.

        Chunks are runs of rows of `hidden_dim` elements. All ranks have as many chunks; sizes,
        indices and counts are int64 tensors, read when the operation starts.

        Args:
            output_tensor_list: tensor r receives what rank r sends here, chunk after chunk in the
                order of its list; as large as what may come at most.
            output_chunk_sizes_per_rank: [comm_size * chunks] element r * chunks + k becomes the
                number of rows that came of chunk k of rank r; 0 if rank r did not list it for this
                one.
            input_tensor: the chunks, one after another.
            input_chunk_sizes: [chunks] rows of each.
            input_chunk_indices: which chunks go to rank 0, which to rank 1, and so on. A chunk may
                go to any number of ranks.
            input_chunk_count_per_rank: [comm_size] how many of the indices are for each rank.
            hidden_dim: elements of a row.

        Raises as all_to_all_v_dynamic()."""
    def alltoallv_dynamic_combine(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        input_chunk_sizes: Tensor,
        input_chunk_indices: Tensor,
        input_chunk_count_per_rank: Tensor,
        hidden_dim: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: AllToAllvSingleOptions | None = None,
    ) -> TorchWork:
        """As alltoallv_dynamic_dispatch(), with all that comes one after another in one tensor.

        For the way back: whoever dispatched knows what returns, in the order of the ranks."""
    def all_to_all_v_dedup(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Tensor,
        input_indices: Tensor,
        input_split_sizes: Tensor,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: AllToAllvSingleOptions | None = None,
    ) -> TorchWork:
        """As all_to_all_v_dynamic(), of listed rows, each of which crosses to another host once.

        A row that several ranks of one host need, or one rank several times, goes there once and is
        fanned out inside, as tokens do that go to several experts.

        Args:
            output: receives all rows that are sent here, in the order of the senders, and of their
                lists; as large as what may come at most.
            input: rows of dimension 0; shares no memory with `output`.
            output_split_sizes: int64 [comm_size], becomes the number of rows from each rank.
            input_indices: int64, the rows for rank 0, then those for rank 1, and so on.
            input_split_sizes: int64 [comm_size], how many of the indices are for each rank.

        Raises as all_to_all_v_dynamic()."""
    def all_to_all_v_dedup_combine(
        self,
        output: Tensor,
        input: Tensor,
        weights: Tensor | None,
        input_split_sizes: Tensor,
        output_indices: Tensor,
        output_split_sizes: Tensor,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: timedelta | None = None,
        *,
        options: AllToAllvSingleOptions | None = None,
    ) -> TorchWork:
        """The way back of all_to_all_v_dedup(): what returns for a row is summed.

        Sums are in fp32 (of float64 in fp64), by hosts in order and inside a host by ranks in
        order, and rounded once. To another host goes one sum per row, 4 bytes an element (float64:
        8).

        Args:
            output: [rows of the dispatch's input, ...] row `output_indices[i]` becomes the sum of
                all rows that return for it, each times its weight; zeros if none does. Of float16,
                bfloat16, float32 or float64.
            input: what the dispatch left here, or what was made of it: as many rows, in that order.
            weights: float32, one per row of `input`; None for a plain sum.
            input_split_sizes: what the dispatch wrote to `output_split_sizes`.
            output_indices: the dispatch's `input_indices`.
            output_split_sizes: the dispatch's `input_split_sizes`.

        Raises:
            CommError: numbers make no sense on this rank; nothing was sent.
            MismatchError: a rank returns another number of rows than is listed for it."""
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
        """`output_tensor_list[r]` becomes `input_tensor_list[rank]` of rank r.

        Both have comm_size tensors; those that belong together have as many elements."""
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
        """`output_tensor` becomes `input_tensor_list[rank]` of rank `root`.

        The list matters there alone: comm_size tensors, each of as many elements as
        `output_tensor`."""
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

        The list matters there alone: comm_size tensors, each of as many elements as
        `input_tensor`."""
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
        """At rank `root`, part r of `output` becomes `input` of rank r.

        There `output` has comm_size times the elements of `input`; elsewhere it is not touched."""

class PersistentAllGather:
    """What all_gather_p_init() returns."""

    @property
    def output(self) -> Tensor | None:
        """None when it is freed."""
    @property
    def comm(self) -> TorchComm | None:
        """Whose it is; None when that has gone."""

class PersistentAllToAll:
    """What all_to_all_p_init() returns."""

    @property
    def output(self) -> Tensor | None:
        """None when it is freed."""
    @property
    def comm(self) -> TorchComm | None:
        """Whose it is; None when that has gone."""

class OpPreHookArgs:
    """What the arguments of operations that move data have in common."""

    @property
    def async_op(self) -> bool:
        """Whether the call returns before the operation has ended."""
    @property
    def timeout(self) -> timedelta:
        """In force: the call's, else the communicator's."""

class SendPreHookArgs(OpPreHookArgs):
    """What hooks are told of `send`."""
    @property
    def tensor(self) -> Tensor:
        """The tensor that is sent, received into, or read and written."""
    @property
    def peer(self) -> int:
        """The other rank; -1 where it may be any."""

class RecvPreHookArgs(OpPreHookArgs):
    """What hooks are told of `recv`."""
    @property
    def tensor(self) -> Tensor:
        """The tensor that is sent, received into, or read and written."""
    @property
    def peer(self) -> int:
        """The other rank; -1 where it may be any."""

class BatchOpIssuePreHookArgs(OpPreHookArgs):
    """What hooks are told of `batch_op_issue`."""
    @property
    def ops(self) -> list[P2POp]:
        """The P2POps."""
    @property
    def num_ops(self) -> int:
        """How many."""

class BroadcastPreHookArgs(OpPreHookArgs):
    """What hooks are told of `broadcast`."""
    @property
    def tensor(self) -> Tensor:
        """The tensor that is sent, received into, or read and written."""
    @property
    def root(self) -> int:
        """The rank that gives to all, or gets from all."""

class AllReducePreHookArgs(OpPreHookArgs):
    """What hooks are told of `all_reduce`."""
    @property
    def tensor(self) -> Tensor:
        """The tensor that is sent, received into, or read and written."""
    @property
    def op(self) -> ReduceOp:
        """The ReduceOp."""

class ReducePreHookArgs(OpPreHookArgs):
    """What hooks are told of `reduce`."""
    @property
    def tensor(self) -> Tensor:
        """The tensor that is sent, received into, or read and written."""
    @property
    def root(self) -> int:
        """The rank that gives to all, or gets from all."""
    @property
    def op(self) -> ReduceOp:
        """The ReduceOp."""

class AllGatherPreHookArgs(OpPreHookArgs):
    """What hooks are told of `all_gather`."""
    @property
    def input(self) -> Tensor:
        """What is read: a Tensor, or a list of one for each rank."""
    @property
    def output(self) -> list[Tensor]:
        """What is written: a Tensor, or a list of one for each rank."""

class AllGatherVPreHookArgs(OpPreHookArgs):
    """What hooks are told of `all_gather_v`."""
    @property
    def input(self) -> Tensor:
        """What is read: a Tensor, or a list of one for each rank."""
    @property
    def output(self) -> list[Tensor]:
        """What is written: a Tensor, or a list of one for each rank."""

class AllGatherSinglePreHookArgs(OpPreHookArgs):
    """What hooks are told of `all_gather_single`."""
    @property
    def input(self) -> Tensor:
        """What is read: a Tensor, or a list of one for each rank."""
    @property
    def output(self) -> Tensor:
        """What is written: a Tensor, or a list of one for each rank."""

class ReduceScatterPreHookArgs(OpPreHookArgs):
    """What hooks are told of `reduce_scatter`."""
    @property
    def input(self) -> list[Tensor]:
        """What is read: a Tensor, or a list of one for each rank."""
    @property
    def output(self) -> Tensor:
        """What is written: a Tensor, or a list of one for each rank."""
    @property
    def op(self) -> ReduceOp:
        """The ReduceOp."""

class ReduceScatterVPreHookArgs(OpPreHookArgs):
    """What hooks are told of `reduce_scatter_v`."""
    @property
    def input(self) -> list[Tensor]:
        """What is read: a Tensor, or a list of one for each rank."""
    @property
    def output(self) -> Tensor:
        """What is written: a Tensor, or a list of one for each rank."""
    @property
    def op(self) -> ReduceOp:
        """The ReduceOp."""

class ReduceScatterSinglePreHookArgs(OpPreHookArgs):
    """What hooks are told of `reduce_scatter_single`."""
    @property
    def input(self) -> Tensor:
        """What is read: a Tensor, or a list of one for each rank."""
    @property
    def output(self) -> Tensor:
        """What is written: a Tensor, or a list of one for each rank."""
    @property
    def op(self) -> ReduceOp:
        """The ReduceOp."""

class AllToAllSinglePreHookArgs(OpPreHookArgs):
    """What hooks are told of `all_to_all_single`."""
    @property
    def input(self) -> Tensor:
        """What is read: a Tensor, or a list of one for each rank."""
    @property
    def output(self) -> Tensor:
        """What is written: a Tensor, or a list of one for each rank."""

class AllToAllVSinglePreHookArgs(OpPreHookArgs):
    """What hooks are told of `all_to_all_v_single`."""
    @property
    def input(self) -> Tensor:
        """What is read: a Tensor, or a list of one for each rank."""
    @property
    def output(self) -> Tensor:
        """What is written: a Tensor, or a list of one for each rank."""
    @property
    def input_split_sizes(self) -> list[int]:
        """Rows of dimension 0 for each rank."""
    @property
    def output_split_sizes(self) -> list[int]:
        """Rows of dimension 0 for each rank."""

class AllToAllVDynamicPreHookArgs(OpPreHookArgs):
    """What hooks are told of `all_to_all_v_dynamic`."""
    @property
    def input(self) -> Tensor:
        """What is read: a Tensor, or a list of one for each rank."""
    @property
    def output(self) -> list[Tensor]:
        """What is written: a Tensor, or a list of one for each rank."""
    @property
    def input_split_sizes(self) -> Tensor:
        """Rows of dimension 0 for each rank."""
    @property
    def output_split_sizes(self) -> Tensor | None:
        """Rows of dimension 0 for each rank."""

class AllToAllPreHookArgs(OpPreHookArgs):
    """What hooks are told of `all_to_all`."""
    @property
    def input(self) -> list[Tensor]:
        """What is read: a Tensor, or a list of one for each rank."""
    @property
    def output(self) -> list[Tensor]:
        """What is written: a Tensor, or a list of one for each rank."""

class BarrierPreHookArgs(OpPreHookArgs):
    """What hooks are told of `barrier`."""

class ScatterPreHookArgs(OpPreHookArgs):
    """What hooks are told of `scatter`."""
    @property
    def input(self) -> list[Tensor]:
        """What is read: a Tensor, or a list of one for each rank."""
    @property
    def output(self) -> Tensor:
        """What is written: a Tensor, or a list of one for each rank."""
    @property
    def root(self) -> int:
        """The rank that gives to all, or gets from all."""

class GatherPreHookArgs(OpPreHookArgs):
    """What hooks are told of `gather`."""
    @property
    def input(self) -> Tensor:
        """What is read: a Tensor, or a list of one for each rank."""
    @property
    def output(self) -> list[Tensor]:
        """What is written: a Tensor, or a list of one for each rank."""
    @property
    def root(self) -> int:
        """The rank that gives to all, or gets from all."""

class GatherSinglePreHookArgs(OpPreHookArgs):
    """What hooks are told of `gather_single`."""
    @property
    def input(self) -> Tensor:
        """What is read: a Tensor, or a list of one for each rank."""
    @property
    def output(self) -> Tensor:
        """What is written: a Tensor, or a list of one for each rank."""
    @property
    def root(self) -> int:
        """The rank that gives to all, or gets from all."""

class SplitPreHookArgs:
    """What hooks are told of `split`."""
    @property
    def ranks(self) -> list[int]:
        """Those of the child, in its order; empty on a rank that joins none."""
    @property
    def name(self) -> str:
        """Of the child."""

class NewWindowPreHookArgs:
    """What hooks are told of `new_window`."""
    @property
    def tensor(self) -> Tensor | None:
        """What is registered at once, or None."""

class PutPreHookArgs(OpPreHookArgs):
    """What hooks are told of `put`."""
    @property
    def tensor(self) -> Tensor:
        """The tensor that is sent, received into, or read and written."""
    @property
    def peer(self) -> int:
        """The other rank; -1 where it may be any."""
    @property
    def offset(self) -> int:
        """Elements of the tensor."""

class GetPreHookArgs(OpPreHookArgs):
    """What hooks are told of `get`."""
    @property
    def tensor(self) -> Tensor:
        """The tensor that is sent, received into, or read and written."""
    @property
    def peer(self) -> int:
        """The other rank; -1 where it may be any."""
    @property
    def offset(self) -> int:
        """Elements of the tensor."""

class FlushPreHookArgs(OpPreHookArgs):
    """What hooks are told of `flush`."""
    @property
    def peer(self) -> int:
        """The other rank; -1 where it may be any."""

class SignalPreHookArgs(OpPreHookArgs):
    """What hooks are told of `signal`."""
    @property
    def peer(self) -> int:
        """The other rank; -1 where it may be any."""

class WaitSignalPreHookArgs(OpPreHookArgs):
    """What hooks are told of `wait_signal`."""
    @property
    def peer(self) -> int:
        """-1 where it is anybody's."""

class FinalizePreHookArgs:
    """What hooks are told of `finalize`."""

class ReconfigurePreHookArgs:
    """What hooks are told of `reconfigure`."""
    @property
    def uuid(self) -> str:
        """As it was passed."""
    @property
    def init_handles(self) -> list[str]:
        """Of the new members."""

_PreHookArgs: TypeAlias = (
    SendPreHookArgs
    | RecvPreHookArgs
    | BatchOpIssuePreHookArgs
    | BroadcastPreHookArgs
    | AllReducePreHookArgs
    | ReducePreHookArgs
    | AllGatherPreHookArgs
    | AllGatherVPreHookArgs
    | AllGatherSinglePreHookArgs
    | ReduceScatterPreHookArgs
    | ReduceScatterVPreHookArgs
    | ReduceScatterSinglePreHookArgs
    | AllToAllSinglePreHookArgs
    | AllToAllVSinglePreHookArgs
    | AllToAllVDynamicPreHookArgs
    | AllToAllPreHookArgs
    | BarrierPreHookArgs
    | ScatterPreHookArgs
    | GatherPreHookArgs
    | GatherSinglePreHookArgs
    | SplitPreHookArgs
    | NewWindowPreHookArgs
    | FinalizePreHookArgs
    | ReconfigurePreHookArgs
    | PutPreHookArgs
    | GetPreHookArgs
    | FlushPreHookArgs
    | SignalPreHookArgs
    | WaitSignalPreHookArgs
)

class CollectivePostHookArgs:
    """Of every operation that moves data but batches."""

    @property
    def work(self) -> TorchWork | None:
        """None when the program has let go of it."""

class BatchOpIssuePostHookArgs:
    """What hooks are told of `batch_op_issue`."""
    @property
    def work(self) -> TorchWork | None:
        """None when the program has let go of it."""

class SplitPostHookArgs:
    """What hooks are told of `split`."""
    @property
    def new_comm(self) -> TorchComm | None:
        """None on a rank that joined no group, and when it has gone."""

class NewWindowPostHookArgs:
    """What hooks are told of `new_window`."""
    @property
    def window(self) -> TorchCommWindow | None:
        """None when it has gone."""

class FinalizePostHookArgs:
    """What hooks are told of `finalize`."""

class ReconfigurePostHookArgs:
    """What hooks are told of `reconfigure`."""
    @property
    def rank(self) -> int:
        """Of this process, from now on."""
    @property
    def size(self) -> int:
        """From now on."""

_PostHookArgs: TypeAlias = (
    CollectivePostHookArgs
    | BatchOpIssuePostHookArgs
    | SplitPostHookArgs
    | NewWindowPostHookArgs
    | FinalizePostHookArgs
    | ReconfigurePostHookArgs
)

class RemovableHandle:
    """Takes a hook away. Letting go of the handle does not."""

    def remove(self) -> None:
        """The hook is not called any more. Any thread, also inside the hook; may be repeated."""

class ReconfigureOptions:
    """Of whom a communicator consists from now on; see TorchComm.reconfigure()."""

    uuid: str
    def __init__(
        self,
        uuid: str | int,
        init_handles: Sequence[str] | AbstractSet[str],
        timeout: timedelta | None = None,
        hints: dict[str, str] | None = None,
    ) -> None: ...
    @property
    def init_handles(self) -> list[str] | set[str]:
        """A list: ordered. A set: not."""
    @property
    def timeout(self) -> timedelta:
        """Zero is the communicator's."""
    @property
    def hints(self) -> dict[str, str]:
        """For the backend."""

class MemAllocator:
    """Makes tensors in memory of which a backend can make the most."""

    def empty(self, size: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
        """A tensor whose contents are not set. Its memory begins at a page of its own."""

def get_mem_allocator(backend: str, device: torch.device | str | None = None) -> Any:
    """The allocator of a backend for a device: by default CUDA where there is a GPU, else the CPU.

    For CUDA it is what torch.cuda.MemPool takes, a torch._C._cuda_CUDAAllocator: of ctran and ncclx
    symmetric memory, of nccl and its kin the library's. For the CPU, a MemAllocator. Raises
    CommError if it has none."""

def empty_shared(size: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
    """A CPU tensor, contents not set, in page-aligned memory that the other processes of the host
    can map: windows over it are UNIFIED."""

class FlightRecorderHook:
    """Remembers the last operations of communicators: what, when, how far each has come.

    When one of them breaks (a timeout, an abort, a lost peer) it writes them to a file, which
    `python -m torch.distributed.flight_recorder.fr_trace` reads. Usable from any thread."""

    def __init__(self, max_entries: int | None = None, isolated: bool = False) -> None:
        """
        Args:
            max_entries: how many are remembered, by default TORCHCOMM_FR_BUFFER_SIZE (2048); with 0
                the hook does nothing.
            isolated: whether it shares what it remembers with the other hooks of the process."""
    def register_with_comm(self, comm: TorchComm) -> None:
        """From now on the operations of `comm` are recorded, and those of communicators split from
        it. Once is enough."""
    def unregister(self) -> None:
        """Records no more, of any communicator; keeps what it has."""
    def dump_json(self, include_completed: bool = True) -> str:
        """What is remembered, as JSON; see docs/hooks.md."""
    def dump_file(self, rank: int, include_completed: bool = True) -> str:
        """Writes it as a pickle to TORCHCOMM_FR_DUMP_TEMP_FILE followed by the rank (without it if
        TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME is true).

        Returns the path. Raises RuntimeError if it cannot be written."""
    def broken(self) -> list[str]:
        """The names of the communicators that have broken, until they are reconfigured or
        finalized."""
    def reset(self) -> None:
        """Forgets all entries."""
    def is_enabled(self) -> bool:
        """Whether it has communicators to record, and room for entries."""
    def size(self) -> int:
        """Entries remembered now."""
    def __len__(self) -> int: ...

class clog:
    """Writes a compact log of the operations of communicators, a line per event."""

    def __init__(self, output: str, events: list[str] = ..., verbose: list[str] = ...) -> None:
        """
        Args:
            output: the file, of this rank alone, which is there from now on; "{rank}" in it becomes
                the rank of the first communicator, and in a folder it is clog_rank<rank>.log: then
                it is made when that is registered.
            events: "LIFECYCLE" or "ALL" add start, end and waits.
            verbose: "buffers" adds addresses.

        Raises:
            ValueError: for other events, or about something else.
            RuntimeError: the file cannot be written."""
    def register_with_comm(self, comm: TorchComm) -> None:
        """From now on the operations of `comm` are logged."""
    def unregister(self) -> None:
        """Logs no more, of any communicator."""

class NanCheckHook:
    """Raises where a NaN would be sent, or has been received; reads every element.

    What has been received is checked when the operation has ended, for async_op=True in the wait
    for it."""

    def __init__(self, check_inputs: bool = True, check_outputs: bool = False) -> None: ...
    def register_with_comm(self, comm: TorchComm) -> None:
        """From now on the operations of `comm` are checked."""
    def unregister(self) -> None:
        """Checks no more, on any communicator."""
    def is_enabled(self) -> bool:
        """Whether it has communicators to check, and something to look at."""

class _BackendWrapper(Backend):
    """A TorchComm as a backend of torch.distributed, for a device of a ProcessGroup.

    Several threads may use it at the same time."""

    def __init__(self, comm: TorchComm) -> None: ...
    def get_comm(self) -> TorchComm:
        """The communicator."""
    @property
    def mem_allocator(self) -> Any:
        """The communicator's."""
    def register_mem_pool(self, pool: Any) -> None:
        """Registers all memory that a torch.cuda.MemPool has now, as TorchComm.tensor_register()
        does that of a tensor.

        Called again, it adds what the pool has got meanwhile. The pool must keep its memory until
        deregister_mem_pool(). Raises CommError."""
    def deregister_mem_pool(self, pool: Any) -> None:
        """Takes that back. Raises CommError if the pool is not registered."""
    def perform_nocolor_split(self, device: object) -> None:
        """Nothing: new groups make communicators of their own, without the parent's other ranks."""

class RdmaMemoryView:
    """A part of registered memory that can be sent."""

    @property
    def ptr(self) -> int:
        """Its address."""

    @property
    def size(self) -> int:
        """Its bytes."""

    def __len__(self) -> int: ...

class RdmaMutableMemoryView(RdmaMemoryView):
    """A part of registered memory that can be received into."""

class RdmaRemoteBuffer:
    """Memory of the peer's: where it is, how much, and the key to it. It can be pickled."""

    def __init__(self, ptr: int, len: int, access_key: str) -> None: ...
    @property
    def ptr(self) -> int:
        """Its address in the peer."""

    @property
    def len(self) -> int:
        """Its bytes."""

    @property
    def access_key(self) -> str:
        """What lets a connected peer reach it."""

    def slice(self, offset: int, length: int) -> RdmaRemoteBuffer:
        """A part of it."""

class RdmaMemory:
    """The memory of a contiguous tensor, registered for RDMA as long as this, a view of it or a
    transfer lives; they keep the tensor's memory."""

    def __init__(self, tensor: Tensor) -> None: ...
    def to_view(self, offset: int = 0, length: int | None = None) -> RdmaMemoryView:
        """The tensor, or `length` bytes from `offset`, to be sent."""

    def to_mutable_view(self, offset: int = 0, length: int | None = None) -> RdmaMutableMemoryView:
        """The tensor, or `length` bytes from `offset`, to be received into."""

    def to_remote_buffer(self) -> RdmaRemoteBuffer:
        """What the peer needs to reach it."""

    def create_view(self, offset: int, length: int) -> RdmaMemoryView:
        """`length` bytes from an offset, or from an address inside, to be sent."""

    def create_mutable_view(self, offset: int, length: int) -> RdmaMutableMemoryView:
        """`length` bytes from an offset, or from an address inside, to be received into."""

    def createView(self, offset: int, length: int) -> RdmaMemoryView:
        """create_view()."""

    def createMutableView(self, offset: int, length: int) -> RdmaMutableMemoryView:
        """create_mutable_view()."""

    def contains(self, ptr: int, length: int) -> bool:
        """Whether `length` bytes at an address lie inside."""

    @property
    def local_key(self) -> int:
        """Tells one registration of this process from another."""

    @property
    def remote_key(self) -> str:
        """What lets a connected peer reach it."""

    def localKey(self) -> int:
        """local_key."""

    def remoteKey(self) -> str:
        """remote_key."""

    @property
    def reused_registration(self) -> bool:
        """Whether a registration that there was covers it."""

class RdmaEventLoop:
    """A thread that drives the transports which are given it."""

    def __init__(self) -> None: ...

class _RdmaCompletions:
    """Transfers that have ended."""

    def __init__(self) -> None: ...
    def fd(self) -> int:
        """An eventfd, which is written for each."""

    def take(self) -> list[tuple[int, BaseException | None]]:
        """(number, None or the exception) of each since the last call."""

class _RdmaTransport:
    """torchcomms.transport.RdmaTransport, with numbers for futures."""

    def __init__(
        self,
        completions: _RdmaCompletions,
        event_loop: RdmaEventLoop | None,
        timeout: timedelta,
        gpu: int,
    ) -> None: ...
    def bind(self) -> str: ...
    def connect(self, url: str) -> None: ...
    def connected(self) -> bool: ...
    def write(
        self, view: RdmaMemoryView, remote: RdmaRemoteBuffer, notify: bool, id: int
    ) -> None: ...
    def read(self, view: RdmaMutableMemoryView, remote: RdmaRemoteBuffer, id: int) -> None: ...
    def wait_for_write(self, id: int) -> None: ...
    def close(self) -> None: ...

def _rdma_why_unsupported() -> str | None:
    """None where there is a device that can be used, else the reason."""

def new_comm(
    backend: str,
    device: torch.device | str,
    name: str | None = None,
    abort_process_on_timeout_or_error: bool | None = None,
    timeout: timedelta | None = None,
    is_high_priority_stream: bool | None = None,
    store: Store | None = None,
    enable_reconfigure: bool = False,
    hints: dict[str, str] | None = None,
    options: CommOptions | None = None,
) -> TorchComm:
    """Makes a communicator: collective over its ranks.

    Args:
        backend: its name; torchcomms.built_backends() lists them.
        device: of its tensors; a torch.device, or its name. A GPU without an index is the current
            one, unless that is the first: then rank r takes the one with index r modulo their
            number, and makes it current for the calling thread, so that `device="cuda"` means that
            one from then on. With an index, the current device stays what it is.
        name: the same on every rank.
        abort_process_on_timeout_or_error: whether an error that nobody is waiting for ends the
            process.
        timeout: of the creation and, by default, of operations.
        store: through which the ranks find each other; without one, what started the process is
            recognised (torchrun, MPI, Slurm, TORCHCOMM_RANK and TORCHCOMM_SIZE), else the
            communicator has one rank.
        enable_reconfigure: it has no members, and meets nobody, until its first reconfigure().
        hints: for the backend.
        options: of which the other arguments override parts.

    Raises:
        CommError: no such backend, or the ranks did not come together.
    """

def _check_reducible(dtype: torch.dtype, op: str) -> None:
    """Raises what the operation `op` raises if no reduction takes `dtype`."""

def _choose_device(device: torch.device, rank: int) -> torch.device:
    """The device on which new_comm() makes a communicator of `device` on rank `rank`; it is made
    current where new_comm() does so."""

def _is_backend_registered(backend: str) -> bool:
    """Whether new_comm() can make this backend as things are."""

def _load_plugin(backend: str) -> bool:
    """Loads the backend from the library that TORCHCOMMS_BACKEND_LIB_PATH_<NAME> names; False if it
    names none."""

def register_backend(name: str, cls: type[TorchCommBackend]) -> None:
    """Makes the subclass `cls` of TorchCommBackend the backend `name` of new_comm(). Raises
    ValueError if there is one of that name."""

def _config_variables() -> list[tuple[str, str, str, str, str, bool, str]]:
    """The environment variables: name, type, default, the text that is set, where, whether it can
    be changed while a program runs, meaning."""

def _config_text(name: str) -> str:
    """What a variable is set to, here or in the file; empty where it is not."""

def _config_fault(name: str, text: str) -> str:
    """Why the variable cannot have that value; empty if it can."""

def _config_file() -> tuple[str, str, dict[str, str]]:
    """The file that TORCHCOMM_CONFIG names, if one is named: its path, why it cannot be used, and
    its variables."""

def _config_unknown(names: Sequence[str]) -> list[tuple[str, str]]:
    """Of names of variables, those that should mean something here and do not, with what may be
    meant."""

def _open_log_queue() -> None:
    """From now on what is logged goes to a queue."""

def _close_log_queue() -> None:
    """What is logged goes where it went before."""

def _next_logs() -> list[tuple[float, str, str, int | None, str]]:
    """Waits for messages: time, level, component, rank, text of each. None after the queue was
    closed."""

def _registered_backends() -> list[str]:
    """The names that _is_backend_registered() knows."""

def _retire() -> None:
    """Ends what the process does in the background; the interpreter is about to go."""
