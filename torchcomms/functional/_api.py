"""The operations as functions that return new tensors. Dynamo traces this."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from torchcomms._comms import ReduceOp, TorchComm
from torchcomms.functional._async_tensor import AsyncTensor
from torchcomms.functional._definitions import milliseconds
from torchcomms.functional._registry import register

Comm = TorchComm | str
Hints = Mapping[str, str] | None
Timeout = datetime.timedelta | None


def _reduction(op: ReduceOp) -> tuple[str, float | None, Tensor | None]:
    factor = op.factor
    if isinstance(factor, Tensor):
        return op.type.name, None, factor
    return op.type.name, factor, None


def _milliseconds(timeout: datetime.timedelta) -> int:
    return milliseconds(timeout)


# Dynamo calls these, with the objects that it has found, and takes the results for constants.
_constants: list[Any] = [register, _reduction, _milliseconds]
for _function in _constants:
    _function._dynamo_marked_constant = True


def _refuse_tangents(name: str, read: Sequence[Tensor]) -> None:
    # Custom operations would drop them without a word.
    unpack: Any = forward_ad.unpack_dual  # which has no types
    if any(unpack(tensor).tangent is not None for tensor in read):
        raise NotImplementedError(
            f"{name} has gradients in reverse mode (backward), not in forward mode (jvp, jacfwd)"
        )


def _run(
    name: str,
    comm: Comm,
    arguments: tuple[Any, ...],
    read: Sequence[Tensor],
    async_op: bool,
    hints: Hints,
    timeout: Timeout,
    *rest: Any,
) -> Any:
    if not torch.compiler.is_compiling():
        _refuse_tangents(name, read)
    owner = comm if isinstance(comm, str) else register(comm)
    flat = [word for pair in hints.items() for word in pair] if hints else None
    limit = _milliseconds(timeout) if timeout is not None else 0
    operation = getattr(torch.ops.torchcomms, f"torchcomm_{name}")
    result = operation(owner, *arguments, async_op, flat, limit, *rest)
    if not async_op:
        return result
    if isinstance(result, Tensor):
        return AsyncTensor(result, read)
    return [AsyncTensor(tensor, read) for tensor in result]


def _run_reduction(
    name: str,
    comm: Comm,
    arguments: tuple[Any, ...],
    op: ReduceOp,
    read: Sequence[Tensor],
    async_op: bool,
    hints: Hints,
    timeout: Timeout,
) -> Any:
    kind, scale, factor = _reduction(op)
    return _run(name, comm, (*arguments, kind), read, async_op, hints, timeout, scale, factor)


def all_reduce(
    comm: Comm,
    tensor: Tensor,
    op: ReduceOp,
    async_op: bool = False,
    hints: Hints = None,
    timeout: Timeout = None,
) -> Any:
    """The reduction of all ranks' `tensor`, of its shape."""
    return _run_reduction("all_reduce", comm, (tensor,), op, [tensor], async_op, hints, timeout)


def reduce(
    comm: Comm,
    tensor: Tensor,
    root: int,
    op: ReduceOp,
    async_op: bool = False,
    hints: Hints = None,
    timeout: Timeout = None,
) -> Any:
    """At rank `root`, as all_reduce; elsewhere a copy of `tensor`."""
    return _run_reduction("reduce", comm, (tensor, root), op, [tensor], async_op, hints, timeout)


def broadcast(
    comm: Comm,
    tensor: Tensor,
    root: int,
    async_op: bool = False,
    hints: Hints = None,
    timeout: Timeout = None,
) -> Any:
    """`tensor` of rank `root`; that of the others tells the shape."""
    return _run("broadcast", comm, (tensor, root), [tensor], async_op, hints, timeout)


def all_gather(
    comm: Comm,
    tensor: Tensor,
    async_op: bool = False,
    hints: Hints = None,
    timeout: Timeout = None,
) -> Any:
    """A list of all ranks' `tensor`, which have one shape."""
    return _run("all_gather", comm, (tensor,), [tensor], async_op, hints, timeout)


def all_gather_v(
    comm: Comm,
    tensor: Tensor,
    rows: Sequence[int],
    async_op: bool = False,
    hints: Hints = None,
    timeout: Timeout = None,
) -> Any:
    """A list of all ranks' `tensor`; that of rank r has `rows[r]` in dimension 0."""
    return _run("all_gather_v", comm, (tensor, list(rows)), [tensor], async_op, hints, timeout)


def all_gather_single(
    comm: Comm,
    input: Tensor,
    async_op: bool = False,
    hints: Hints = None,
    timeout: Timeout = None,
) -> Any:
    """All ranks' `input`, one after another in dimension 0."""
    return _run("all_gather_single", comm, (input,), [input], async_op, hints, timeout)


def reduce_scatter(
    comm: Comm,
    input_list: Sequence[Tensor],
    op: ReduceOp,
    async_op: bool = False,
    hints: Hints = None,
    timeout: Timeout = None,
) -> Any:
    """The reduction of all ranks' `input_list[rank]`."""
    inputs = list(input_list)
    return _run_reduction("reduce_scatter", comm, (inputs,), op, inputs, async_op, hints, timeout)


def reduce_scatter_v(
    comm: Comm,
    input_list: Sequence[Tensor],
    op: ReduceOp,
    async_op: bool = False,
    hints: Hints = None,
    timeout: Timeout = None,
) -> Any:
    """As reduce_scatter; the tensors of a list may differ in size."""
    inputs = list(input_list)
    return _run_reduction("reduce_scatter_v", comm, (inputs,), op, inputs, async_op, hints, timeout)


def reduce_scatter_single(
    comm: Comm,
    input: Tensor,
    op: ReduceOp,
    async_op: bool = False,
    hints: Hints = None,
    timeout: Timeout = None,
) -> Any:
    """The reduction of part `rank` of all ranks' `input`, cut in dimension 0."""
    name = "reduce_scatter_single"
    return _run_reduction(name, comm, (input,), op, [input], async_op, hints, timeout)


def all_to_all_single(
    comm: Comm,
    input: Tensor,
    async_op: bool = False,
    hints: Hints = None,
    timeout: Timeout = None,
) -> Any:
    """Part `rank` of every rank's `input`, cut in dimension 0, one after another."""
    return _run("all_to_all_single", comm, (input,), [input], async_op, hints, timeout)


def all_to_all_v_single(
    comm: Comm,
    input: Tensor,
    output_split_sizes: Sequence[int],
    input_split_sizes: Sequence[int],
    async_op: bool = False,
    hints: Hints = None,
    timeout: Timeout = None,
) -> Any:
    """As all_to_all_single with parts of given sizes, in rows of dimension 0."""
    arguments = (input, list(output_split_sizes), list(input_split_sizes))
    return _run("all_to_all_v_single", comm, arguments, [input], async_op, hints, timeout)


def all_to_all(
    comm: Comm,
    input_tensor_list: Sequence[Tensor],
    output_numels: Sequence[int] = (),
    async_op: bool = False,
    hints: Hints = None,
    timeout: Timeout = None,
) -> Any:
    """A list of every rank's `input_tensor_list[rank]`: flat, of `output_numels[r]` elements from
    rank r; without numbers, of the shapes of the inputs."""
    inputs = list(input_tensor_list)
    arguments = (inputs, list(output_numels))
    return _run("all_to_all", comm, arguments, inputs, async_op, hints, timeout)


def scatter(
    comm: Comm,
    output_tensor: Tensor,
    input_tensor_list: Sequence[Tensor] | None,
    root: int,
    async_op: bool = False,
    hints: Hints = None,
    timeout: Timeout = None,
) -> Any:
    """`input_tensor_list[rank]` of rank `root`; `output_tensor` tells the shape alone."""
    inputs = list(input_tensor_list or [])
    arguments = (output_tensor, inputs, root)
    return _run("scatter", comm, arguments, inputs, async_op, hints, timeout)


def gather(
    comm: Comm,
    input_tensor: Tensor,
    root: int,
    async_op: bool = False,
    hints: Hints = None,
    timeout: Timeout = None,
) -> Any:
    """At rank `root`, a list of all ranks' `input_tensor`; elsewhere of one empty tensor."""
    arguments = (input_tensor, root)
    return _run("gather", comm, arguments, [input_tensor], async_op, hints, timeout)


def gather_single(
    comm: Comm,
    input: Tensor,
    root: int,
    async_op: bool = False,
    hints: Hints = None,
    timeout: Timeout = None,
) -> Any:
    """At rank `root`, as all_gather_single; elsewhere an empty tensor."""
    return _run("gather_single", comm, (input, root), [input], async_op, hints, timeout)


def send(
    comm: Comm,
    tensor: Tensor,
    dst: int,
    async_op: bool = False,
    hints: Hints = None,
    timeout: Timeout = None,
    tag: int = 0,
) -> Any:
    """Sends `tensor` to rank `dst`; an empty tensor comes back. No gradient does."""
    return _run("send", comm, (tensor, dst), [tensor], async_op, hints, timeout, tag)


def recv(
    comm: Comm,
    tensor: Tensor,
    src: int,
    async_op: bool = False,
    hints: Hints = None,
    timeout: Timeout = None,
    tag: int = 0,
) -> Any:
    """What rank `src` sends; `tensor` tells the shape alone."""
    return _run("recv", comm, (tensor, src), [], async_op, hints, timeout, tag)


def barrier(
    comm: Comm, async_op: bool = False, hints: Hints = None, timeout: Timeout = None
) -> Any:
    """Ends when every rank has called it; an empty tensor comes back."""
    return _run("barrier", comm, (), [], async_op, hints, timeout)
