"""Gradients of the operations, for the sum of all ranks' losses.

Every rank has to run the backward pass of what it has run forward: gradients are communicated too.
Where several ranks have the minimum or maximum, each gets the same share of the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchcomms.functional import _ops
from torchcomms.functional._definitions import LIBRARY, operation
from torchcomms.functional._registry import comm_of

Ctx = Any


def _given(ctx: Ctx) -> int:
    """The arguments of the call: without defaults at the end, which torch strips."""
    return len(ctx.needs_input_grad)


def _register(name: str, setup: Callable[..., None], backward: Callable[..., Any]) -> None:
    def setup_context(ctx: Ctx, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.set_materialize_grads(True)
        ctx.comm = inputs[0]
        setup(ctx, inputs, output)

    def gradients(ctx: Ctx, *grads: Any) -> tuple[Any, ...]:
        found = backward(ctx, *grads)
        return (None, found, *([None] * (_given(ctx) - 2)))

    torch.library.register_autograd(
        f"torchcomms::torchcomm_{name}", gradients, setup_context=setup_context, lib=LIBRARY
    )


def _nothing(_: Ctx, __: tuple[Any, ...], ___: Any) -> None:
    pass


def _sum(comm: str, tensor: Tensor) -> Any:
    return operation("all_reduce")(comm, tensor.contiguous(), "SUM")


def _broadcast(comm: str, tensor: Tensor, root: int) -> Any:
    return operation("broadcast")(comm, tensor.contiguous(), root)


# Reductions. `y` is the result and `g` its gradient, both of the shape of `x`, the input of this
# rank, and the same on all ranks.


def _factor_of(ctx: Ctx, op: str, scale: float | None, factor: Tensor | None) -> None:
    if op in ("BAND", "BOR", "BXOR"):
        raise RuntimeError(f"{op} has no gradient: call it on tensors that require none")
    if factor is not None and factor.requires_grad:
        raise RuntimeError("PREMUL_SUM has no gradient with respect to its factor: detach() it")
    ctx.op, ctx.scale = op, scale
    ctx.has_factor = factor is not None


def _needs_values(op: str) -> bool:
    return op in ("MIN", "MAX", "PRODUCT")


def _linear(ctx: Ctx, factor: Sequence[Tensor], g: Tensor) -> Tensor:
    """The gradient of SUM, AVG and PREMUL_SUM, of the sum of gradients `g`."""
    if ctx.op == "AVG":
        return g / comm_of(ctx.comm).get_size()
    if ctx.op == "PREMUL_SUM":
        return g * (factor[0].conj() if ctx.has_factor else ctx.scale)
    return g


def _selective(comm: str, op: str, x: Tensor, y: Tensor, g: Tensor) -> Tensor:
    """The gradient of MIN, MAX and PRODUCT."""
    if op == "PRODUCT":
        zero = x == 0
        zeros = _sum(comm, zero.to(torch.int32))
        others = operation("all_reduce")(comm, torch.where(zero, torch.ones_like(x), x), "PRODUCT")
        # With one zero among the factors the others have no gradient; with two, none has.
        alone = torch.where(zero & (zeros == 1), others, torch.zeros_like(x))
        return g * torch.where(zeros == 0, y / x, alone).conj()
    chosen = (x == y) | (x.isnan() & y.isnan())
    count = _sum(comm, chosen.to(torch.int32))
    return torch.where(chosen, g / count, torch.zeros_like(g))


def _save(ctx: Ctx, op: str, factor: Tensor | None, x: Tensor, y: Tensor) -> None:
    ctx.save_for_backward(*([factor] if factor is not None else []), *_values(op, x, y))


def _values(op: str, x: Tensor, y: Tensor) -> list[Tensor]:
    return [x, y] if _needs_values(op) else []


def _tail(inputs: tuple[Any, ...], scale: int) -> tuple[float | None, Tensor | None]:
    given = tuple(inputs[scale : scale + 2])
    return given if len(given) == 2 else (None, None)


def _setup_all_reduce(ctx: Ctx, inputs: tuple[Any, ...], output: Tensor) -> None:
    scale, factor = _tail(inputs, 6)
    _factor_of(ctx, inputs[2], scale, factor)
    _save(ctx, inputs[2], factor, inputs[1], output)


def _all_reduce(ctx: Ctx, grad: Tensor) -> Tensor:
    g = _sum(ctx.comm, grad)
    if _needs_values(ctx.op):
        x, y = ctx.saved_tensors[-2:]
        return _selective(ctx.comm, ctx.op, x, y, g)
    return _linear(ctx, ctx.saved_tensors, g)


def _setup_reduce(ctx: Ctx, inputs: tuple[Any, ...], output: Tensor) -> None:
    scale, factor = _tail(inputs, 7)
    ctx.root = inputs[2]
    _factor_of(ctx, inputs[3], scale, factor)
    _save(ctx, inputs[3], factor, inputs[1], output)


def _reduce(ctx: Ctx, grad: Tensor) -> Tensor:
    g = _broadcast(ctx.comm, grad, ctx.root)
    if _needs_values(ctx.op):
        x, y = ctx.saved_tensors[-2:]
        own = _selective(ctx.comm, ctx.op, x, _broadcast(ctx.comm, y, ctx.root), g)
    else:
        own = _linear(ctx, ctx.saved_tensors, g)
    # Elsewhere than at the root the output is the input.
    return own if comm_of(ctx.comm).get_rank() == ctx.root else own + grad


def _setup_reduce_scatter_single(ctx: Ctx, inputs: tuple[Any, ...], output: Tensor) -> None:
    scale, factor = _tail(inputs, 6)
    _factor_of(ctx, inputs[2], scale, factor)
    _save(ctx, inputs[2], factor, inputs[1], output)


def _reduce_scatter_single(ctx: Ctx, grad: Tensor) -> Tensor:
    gather = operation("all_gather_single")
    g = gather(ctx.comm, grad.contiguous())
    if _needs_values(ctx.op):
        x, y = ctx.saved_tensors[-2:]
        return _selective(ctx.comm, ctx.op, x, gather(ctx.comm, y), g)
    return _linear(ctx, ctx.saved_tensors, g)


def _setup_reduce_scatter(ctx: Ctx, inputs: tuple[Any, ...], output: Tensor) -> None:
    scale, factor = _tail(inputs, 6)
    ctx.shapes = [list(t.shape) for t in inputs[1]]
    _factor_of(ctx, inputs[2], scale, factor)
    values = [*inputs[1], output] if _needs_values(inputs[2]) else []
    ctx.save_for_backward(*([factor] if factor is not None else []), *values)


def _reduce_scatter(ctx: Ctx, grad: Tensor) -> list[Tensor]:
    def gathered(tensor: Tensor) -> Tensor:
        rows = [torch.Size(shape).numel() for shape in ctx.shapes]
        return torch.cat(operation("all_gather_v")(ctx.comm, tensor.reshape(-1), rows))

    g = gathered(grad)
    if _needs_values(ctx.op):
        *xs, y = ctx.saved_tensors[1:] if ctx.has_factor else ctx.saved_tensors
        x = torch.cat([t.reshape(-1) for t in xs])
        flat = _selective(ctx.comm, ctx.op, x, gathered(y), g)
    else:
        flat = _linear(ctx, ctx.saved_tensors, g)
    parts = torch.split(flat, [torch.Size(shape).numel() for shape in ctx.shapes])
    return [part.reshape(shape) for part, shape in zip(parts, ctx.shapes, strict=True)]


_register("all_reduce", _setup_all_reduce, _all_reduce)
_register("reduce", _setup_reduce, _reduce)
_register("reduce_scatter_single", _setup_reduce_scatter_single, _reduce_scatter_single)
_register("reduce_scatter", _setup_reduce_scatter, _reduce_scatter)
_register("reduce_scatter_v", _setup_reduce_scatter, _reduce_scatter)


# What moves data.


def _keep_root(index: int) -> Callable[[Ctx, tuple[Any, ...], Any], None]:
    def setup(ctx: Ctx, inputs: tuple[Any, ...], _: Any) -> None:
        ctx.root = inputs[index]

    return setup


def _broadcast_backward(ctx: Ctx, grad: Tensor) -> Any:
    total = operation("reduce")(ctx.comm, grad.contiguous(), ctx.root, "SUM")
    return total if comm_of(ctx.comm).get_rank() == ctx.root else torch.zeros_like(grad)


def _all_gather(ctx: Ctx, grads: list[Tensor]) -> Any:
    return operation("reduce_scatter")(ctx.comm, [g.contiguous() for g in grads], "SUM")


def _all_gather_v(ctx: Ctx, grads: list[Tensor]) -> Any:
    return operation("reduce_scatter_v")(ctx.comm, [g.contiguous() for g in grads], "SUM")


def _setup_shape(ctx: Ctx, inputs: tuple[Any, ...], _: Any) -> None:
    ctx.shape = inputs[1].shape


def _all_gather_single(ctx: Ctx, grad: Tensor) -> Any:
    return operation("reduce_scatter_single")(ctx.comm, grad, "SUM").reshape(ctx.shape)


def _all_to_all_single(ctx: Ctx, grad: Tensor) -> Any:
    return operation("all_to_all_single")(ctx.comm, grad.contiguous())


def _setup_splits(ctx: Ctx, inputs: tuple[Any, ...], _: Any) -> None:
    ctx.outputs, ctx.inputs = inputs[2], inputs[3]


def _all_to_all_v_single(ctx: Ctx, grad: Tensor) -> Any:
    return operation("all_to_all_v_single")(ctx.comm, grad.contiguous(), ctx.inputs, ctx.outputs)


def _setup_shapes(ctx: Ctx, inputs: tuple[Any, ...], _: Any) -> None:
    ctx.shapes = [list(t.shape) for t in inputs[1]]


def _all_to_all(ctx: Ctx, grads: list[Tensor]) -> list[Tensor]:
    numels = [torch.Size(shape).numel() for shape in ctx.shapes]
    back = operation("all_to_all")(ctx.comm, [g.contiguous() for g in grads], numels)
    return [t.reshape(shape) for t, shape in zip(back, ctx.shapes, strict=True)]


def _gather(ctx: Ctx, grads: list[Tensor]) -> Any:
    at_root = comm_of(ctx.comm).get_rank() == ctx.root
    inputs = [g.contiguous() for g in grads] if at_root else []
    return operation("scatter")(ctx.comm, grads[0].new_empty(ctx.shape), inputs, ctx.root)


def _setup_gather(ctx: Ctx, inputs: tuple[Any, ...], _: Any) -> None:
    ctx.shape, ctx.root = inputs[1].shape, inputs[2]


def _gather_single(ctx: Ctx, grad: Tensor) -> Any:
    comm = comm_of(ctx.comm)
    at_root = comm.get_rank() == ctx.root
    inputs = list(grad.contiguous().chunk(comm.get_size())) if at_root else []
    template = grad.new_empty(ctx.shape)
    inputs = [t.reshape(ctx.shape) for t in inputs]
    return operation("scatter")(ctx.comm, template, inputs, ctx.root)


_register("broadcast", _keep_root(2), _broadcast_backward)
_register("all_gather", _nothing, _all_gather)
_register("all_gather_v", _nothing, _all_gather_v)
_register("all_gather_single", _setup_shape, _all_gather_single)
_register("all_to_all_single", _nothing, _all_to_all_single)
_register("all_to_all_v_single", _setup_splits, _all_to_all_v_single)
_register("all_to_all", _setup_shapes, _all_to_all)
_register("gather", _setup_gather, _gather)
_register("gather_single", _setup_gather, _gather_single)


# What does not begin with the name of a communicator and a tensor.


def _plain(name: str, setup: Callable[..., None], backward: Callable[..., Any]) -> None:
    def setup_context(ctx: Ctx, inputs: tuple[Any, ...], output: Any) -> None:
        setup(ctx, inputs, output)

    torch.library.register_autograd(
        f"torchcomms::torchcomm_{name}", backward, setup_context=setup_context, lib=LIBRARY
    )


def _setup_scatter(ctx: Ctx, inputs: tuple[Any, ...], _: Tensor) -> None:
    ctx.comm, ctx.root = inputs[0], inputs[3]
    ctx.sent = len(inputs[2])


def _scatter(ctx: Ctx, grad: Tensor) -> tuple[Any, ...]:
    gathered = operation("gather")(ctx.comm, grad.contiguous(), ctx.root)
    at_root = comm_of(ctx.comm).get_rank() == ctx.root
    sent: list[Any] = gathered if at_root else [None] * ctx.sent
    return (None, None, sent, *([None] * (_given(ctx) - 3)))


def _setup_wait(ctx: Ctx, inputs: tuple[Any, ...], _: list[Tensor]) -> None:
    held = inputs[1] if len(inputs) > 1 else None
    ctx.held = None if held is None else len(held)


def _wait(ctx: Ctx, grads: list[Tensor]) -> tuple[Any, ...]:
    return grads, None if ctx.held is None else [None] * ctx.held


def _counted(ctx: Ctx, inputs: tuple[Any, ...], _: Any) -> None:
    lists = (isinstance(i, list | tuple) and any(isinstance(t, Tensor) for t in i) for i in inputs)
    ctx.lists = [len(i) if many else None for i, many in zip(inputs, lists, strict=True)]


def _cut(ctx: Ctx, *_: Any) -> tuple[Any, ...]:
    """Messages: the gradient does not go back to whoever has sent them."""
    return tuple(None if n is None else [None] * n for n in ctx.lists[: _given(ctx)])


def _refuse(name: str) -> None:
    """Where a gradient would be wanted, the call raises."""

    def setup(*_: Any) -> None:
        raise RuntimeError(
            f"{name} has no gradient: call it on tensors that require none, as detach() makes them"
        )

    _plain(name, setup, _cut)


_plain("scatter", _setup_scatter, _scatter)
_plain("wait_tensors", _setup_wait, _wait)
for _name in ("send", "recv", "batch_op_issue", "window_put", "window_get"):
    _plain(_name, _counted, _cut)
for _name in _ops.ROW_EXCHANGES:
    _refuse(_name)
