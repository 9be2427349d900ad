"""What methods of communicators, windows and batches are in compiled code. Dynamo traces this."""

from __future__ import annotations

import datetime
from typing import Any

import torch
from torch import Tensor

from torchcomms._comms import BatchP2POptions
from torchcomms.functional._definitions import milliseconds, tensors_in
from torchcomms.functional._in_place import functional_arguments, to_write, written_tensors
from torchcomms.functional._registry import works

# Operations that write no tensor of this rank.
WITHOUT_OUTPUT = (
    "barrier",
    "send",
    "window_put",
    "window_flush",
    "window_signal",
    "window_wait_signal",
    "window_set_signal",
    "window_compare_signal",
)


class Work:
    """What stands for a TorchWork in compiled code, and may leave it.

    In code that is compiled, `wait` has no timeout but the operation's.
    """

    def __init__(self, tensors: list[Tensor], held: list[Tensor], targets: list[Tensor]) -> None:
        """`tensors` are in flight, `targets` get their values; `held` is what is read until then.

        No tensors: the operation has ended."""
        self._tensors = tensors
        self._held = held
        self._targets = targets
        self._pending = len(tensors) > 0

    def is_completed(self) -> bool:
        """Whether the operation has ended; never blocks."""
        return not self._pending or all(w.is_completed() for w in works.find(self._tensors))

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """As TorchWork.wait()."""
        if not self._pending:
            return True
        if (
            timeout is not None
            and not torch.compiler.is_compiling()
            and not all(work.wait(timeout) for work in works.find(self._tensors))
        ):
            return False
        values = torch.ops.torchcomms.torchcomm_wait_tensors(self._tensors, self._held)
        # Not zip(): Dynamo of torch 2.8 takes strict=False for True.
        for index, target in enumerate(self._targets):
            target.copy_(values[index].reshape(target.shape))
        self._pending = False
        return True

    def wait_blocking(self) -> None:
        """As TorchWork.wait_blocking()."""
        if not torch.compiler.is_compiling():
            for work in works.find(self._tensors):
                work.wait_blocking()
        self.wait()


def _as_list(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else list(value)


def issue(
    name: str, owner: str, required: tuple[Any, ...], async_op: bool, rest: tuple[Any, ...]
) -> Work:
    """The operation `name` of what is registered as `owner`; `rest` follows `async_op`."""
    operations = torch.ops.torchcomms
    if name in WITHOUT_OUTPUT:
        ticket = getattr(operations, f"torchcomm_{name}")(owner, *required, async_op, *rest)
        return Work([ticket] if async_op else [], tensors_in(required), [])
    if not async_op:
        getattr(operations, f"torchcomm_{name}_")(owner, *required, False, *rest)
        return Work([], [], [])
    arguments = functional_arguments(name, required)
    values = getattr(operations, f"torchcomm_{name}")(owner, *arguments, True, *rest)
    tensors = _as_list(values)
    targets = to_write(name, written_tensors(name, required), tensors)
    return Work(tensors, tensors_in(arguments), targets)


def _tail(options: BatchP2POptions) -> tuple[list[str] | None, int]:
    """`hints` and `timeout` as operations take them."""
    flat = [word for pair in options.hints.items() for word in pair]
    return flat or None, milliseconds(options.timeout)


# Dynamo calls it, and takes the result for a constant.
_tail._dynamo_marked_constant = True  # type: ignore[attr-defined]


class Batch:
    """What stands for a BatchSendRecv in compiled code."""

    def __init__(self, comm: str) -> None:
        self._comm = comm
        self.ops: list[tuple[Tensor, bool, int, int]] = []

    def send(self, tensor: Tensor, dst: int, tag: int = 0) -> None:
        """As BatchSendRecv.send()."""
        self.ops.append((tensor, True, dst, tag))

    def recv(self, tensor: Tensor, src: int, tag: int = 0) -> None:
        """As BatchSendRecv.recv()."""
        self.ops.append((tensor, False, src, tag))

    def issue(self, async_op: bool, options: BatchP2POptions | None = None) -> Work:
        """As BatchSendRecv.issue()."""
        hints, timeout = (None, 0) if options is None else _tail(options)
        tensors = [op[0] for op in self.ops]
        targets = [op[0] for op in self.ops if not op[1]]
        values = torch.ops.torchcomms.torchcomm_batch_op_issue(
            self._comm,
            tensors,
            [op[1] for op in self.ops],
            [op[2] for op in self.ops],
            [op[3] for op in self.ops],
            async_op,
            hints,
            timeout,
        )
        if async_op:
            return Work(list(values), tensors, targets)
        for index, target in enumerate(targets):
            target.copy_(values[index])
        return Work([], [], [])


def batch_op_create(comm: str) -> Batch:
    """As TorchComm.batch_op_create()."""
    return Batch(comm)


def batch_of(comm: str, ops: list[tuple[Tensor, bool, int, int]]) -> Batch:
    """One to which these have been added."""
    batch = Batch(comm)
    batch.ops = list(ops)
    return batch


def window_get_tensor(
    window: str,
    rank: int | None = None,
    sizes: list[int] | None = None,
    dtype: torch.dtype | None = None,
    offset: int = 0,
) -> Tensor:
    """As TorchCommWindow.get_tensor()."""
    return torch.ops.torchcomms.torchcomm_window_get_tensor(window, rank, sizes, dtype, offset)  # type: ignore[no-any-return]


def window_map_remote_tensor(window: str, rank: int) -> Tensor:
    """As TorchCommWindow.map_remote_tensor()."""
    return window_get_tensor(window, rank)
