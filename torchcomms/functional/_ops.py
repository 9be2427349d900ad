"""The operations that compiled graphs consist of: torch.ops.torchcomms.torchcomm_<operation>.

Each is functional: it writes new tensors only, which it returns. Where the method of TorchComm has
nothing to write, an empty tensor stands for the operation, so that it can be waited for. Graphs
keep them all, and in order: torch threads a token through them ("effects").

Their arguments are those of the methods without the outputs, after the registered name of the
communicator; _definitions.py says what follows. A tensor that only tells a shape is named so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchcomms._comms import BatchP2POptions, P2POp, P2POpType, SignalCmpOp
from torchcomms.functional._definitions import (
    REDUCTION,
    TAG,
    Given,
    changing,
    define,
    define_lowered,
    into_new,
    updating,
)
from torchcomms.functional._registry import comm_of, window_of, works

# What operations return: uninitialised tensors, of the shapes that their arguments tell.


def _like(_: str, tensor: Tensor, *__: Any) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _ticket(*_: Any) -> Tensor:
    return torch.empty(0, dtype=torch.uint8)


def _times(comm: str, tensor: Tensor, *_: Any) -> Tensor:
    size = comm_of(comm).get_size()
    shape = [tensor.shape[0] * size, *tensor.shape[1:]] if tensor.dim() else [size]
    return tensor.new_empty(shape)


def _times_at_root(comm: str, tensor: Tensor, root: int) -> Tensor:
    return _times(comm, tensor) if comm_of(comm).get_rank() == root else tensor.new_empty(0)


def _part(comm: str, tensor: Tensor, *_: Any) -> Tensor:
    size = comm_of(comm).get_size()
    if tensor.dim() == 0 or tensor.shape[0] % size != 0:
        raise RuntimeError(
            f"Dimension 0 of the input, of shape {list(tensor.shape)}, must be divisible by the "
            f"number of ranks ({size})"
        )
    return tensor.new_empty([tensor.shape[0] // size, *tensor.shape[1:]])


def _own(comm: str, tensors: Sequence[Tensor], *_: Any) -> Tensor:
    size = comm_of(comm).get_size()
    if len(tensors) != size:
        raise RuntimeError(f"There must be {size} inputs, one for each rank; got {len(tensors)}")
    return _like(comm, tensors[comm_of(comm).get_rank()])


def _each(comm: str, tensor: Tensor) -> list[Tensor]:
    return [_like(comm, tensor) for _ in range(comm_of(comm).get_size())]


def _each_at_root(comm: str, tensor: Tensor, root: int) -> list[Tensor]:
    return _each(comm, tensor) if comm_of(comm).get_rank() == root else [tensor.new_empty(0)]


def _rows(_: str, tensor: Tensor, rows: Sequence[int]) -> list[Tensor]:
    return [tensor.new_empty([r, *tensor.shape[1:]]) for r in rows]


def _parted(_: str, tensor: Tensor, output_split_sizes: Sequence[int], __: Any) -> Tensor:
    return tensor.new_empty([sum(output_split_sizes), *tensor.shape[1:]])


def _of_peers(comm: str, tensors: Sequence[Tensor], numels: Sequence[int]) -> list[Tensor]:
    if not numels:
        return [_like(comm, t) for t in tensors]
    return [tensors[0].new_empty(n) for n in numels]


def _received(comm: str, tensors: Sequence[Tensor], sends: Sequence[bool], *_: Any) -> list[Tensor]:
    messages = zip(tensors, sends, strict=True)
    return [_like(comm, t) for t, send in messages if not send] or [_ticket()]


# What methods require, of what operations write and are given.


def _first(output: Any, tensor: Tensor, *rest: Any) -> Sequence[Any]:
    return output, tensor.contiguous(), *rest


def _all(output: Any, tensors: Sequence[Tensor], *rest: Any) -> Sequence[Any]:
    return output, [t.contiguous() for t in tensors], *rest


def _sent(_: Any, tensor: Tensor, *rest: Any) -> Sequence[Any]:
    return tensor.contiguous(), *rest


def _instead(output: Any, _: Any, *rest: Any) -> Sequence[Any]:
    return output, *rest


def _others(_: Any, *rest: Any) -> Sequence[Any]:
    return rest


changing("all_reduce", "str comm, Tensor tensor, str op", REDUCTION)
changing("broadcast", "str comm, Tensor tensor, int root")
changing("reduce", "str comm, Tensor tensor, int root, str op", REDUCTION)
into_new("all_gather", "str comm, Tensor tensor", _each, _first, "Tensor[]")
into_new(
    "all_gather_v",
    "str comm, Tensor tensor, SymInt[] rows",
    _rows,
    lambda outputs, tensor, _: (outputs, tensor.contiguous()),
    "Tensor[]",
)
into_new("all_gather_single", "str comm, Tensor input", _times, _first)
for _name in ("reduce_scatter", "reduce_scatter_v"):
    _inputs = "str comm, Tensor[] input_list, str op"
    into_new(_name, _inputs, _own, _all, extra=REDUCTION)
_input = "str comm, Tensor input, str op"
into_new("reduce_scatter_single", _input, _part, _first, extra=REDUCTION)
into_new("all_to_all_single", "str comm, Tensor input", _like, _first)
into_new(
    "all_to_all_v_single",
    "str comm, Tensor input, SymInt[] output_split_sizes, SymInt[] input_split_sizes",
    _parted,
    lambda output, input, outputs, inputs: (
        output,
        input.contiguous(),
        list(outputs),
        list(inputs),
    ),
)
into_new(
    "all_to_all",
    "str comm, Tensor[] input_tensor_list, SymInt[] output_numels=[]",
    _of_peers,
    lambda outputs, inputs, _: _all(outputs, inputs),
    "Tensor[]",
)
into_new("barrier", "str comm", _ticket, _others)
into_new(
    "scatter",
    "str comm, Tensor output_tensor, Tensor[] input_tensor_list, int root",
    _like,
    lambda output, _, inputs, root: _all(output, inputs, root),
)


def _gather(name: str, given: Given, required: Sequence[Any]) -> Any:
    outputs, tensor, root = required
    comm = comm_of(given.owner)
    at_root = outputs if comm.get_rank() == root else []
    return comm.gather(at_root, tensor, root, given.async_op, **given.options())


# Elsewhere than at the root, one empty tensor comes back.
_input = "str comm, Tensor input_tensor, int root"
into_new("gather", _input, _each_at_root, _first, "Tensor[]", call=_gather)
into_new("gather_single", "str comm, Tensor input, int root", _times_at_root, _first)

into_new("send", "str comm, Tensor tensor, int dst", _ticket, _sent, extra=TAG)
into_new("recv", "str comm, Tensor tensor, int src", _like, _instead, extra=TAG)


def _batch(name: str, given: Given, required: Sequence[Any]) -> Any:
    outputs, *messages = required
    received = iter(outputs)
    batch = comm_of(given.owner).batch_op_create()
    batch.ops = [
        P2POp(P2POpType.SEND, tensor.contiguous(), peer, tag)
        if send
        else P2POp(P2POpType.RECV, next(received), peer, tag)
        for tensor, send, peer, tag in zip(*messages, strict=True)
    ]
    return batch.issue(given.async_op, BatchP2POptions(**given.options()))


# What is received comes back; tensors that are received into tell the shapes.
into_new(
    "batch_op_issue",
    "str comm, Tensor[] tensors, bool[] sends, int[] peers, int[] tags",
    _received,
    lambda *messages: messages,
    "Tensor[]",
    call=_batch,
)

# Rows whose numbers stand in tensors; what is marked is written.
ROW_EXCHANGES = {
    "all_to_all_v_dynamic": "Tensor(a!) output, Tensor input, Tensor(b!) output_split_sizes, "
    "Tensor input_split_sizes",
    "device_alltoallv_single": "Tensor(a!) output, Tensor input, Tensor output_split_sizes, "
    "Tensor input_split_sizes",
    "alltoallv_dynamic_dispatch": "Tensor(a!)[] output_tensor_list, "
    "Tensor(b!) output_chunk_sizes_per_rank, Tensor input_tensor, Tensor input_chunk_sizes, "
    "Tensor input_chunk_indices, Tensor input_chunk_count_per_rank, int hidden_dim",
    "alltoallv_dynamic_combine": "Tensor(a!) output_tensor, Tensor input_tensor, "
    "Tensor input_chunk_sizes, Tensor input_chunk_indices, Tensor input_chunk_count_per_rank, "
    "int hidden_dim",
    "all_to_all_v_dedup": "Tensor(a!) output, Tensor input, Tensor(b!) output_split_sizes, "
    "Tensor input_indices, Tensor input_split_sizes",
    "all_to_all_v_dedup_combine": "Tensor(a!) output, Tensor input, Tensor? weights, "
    "Tensor input_split_sizes, Tensor output_indices, Tensor output_split_sizes",
}
for _name, _arguments in ROW_EXCHANGES.items():
    updating(_name, f"str comm, {_arguments}")

# Windows. What is put and got is counted in elements of the tensor.
into_new("window_put", "str window, Tensor tensor, int dst_rank, SymInt offset", _ticket, _sent)
into_new("window_get", "str window, Tensor tensor, int src_rank, SymInt offset", _like, _instead)
into_new("window_flush", "str window, int dst_rank", _ticket, _others)
into_new("window_signal", "str window, int peer_rank", _ticket, _others)
into_new("window_wait_signal", "str window, int peer_rank", _ticket, _others)
into_new(
    "window_set_signal",
    "str window, int signal_disp, int signal_val, int dst_rank",
    _ticket,
    _others,
)
into_new(
    "window_compare_signal",
    "str window, int signal_disp, int signal_val, str cmp_op",
    _ticket,
    lambda _, disp, value, op: (disp, value, SignalCmpOp.__members__[op]),
)


def _mapped_shape(
    window: str,
    rank: int | None = None,
    sizes: Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
    offset: int = 0,
) -> Tensor:
    found = window_of(window)
    chosen = dtype or found.dtype
    shape: Sequence[int] = found.shape
    if sizes is not None:
        shape = sizes
    elif dtype is not None or offset != 0:
        shape = [math.prod(found.shape) * found.dtype.itemsize // chosen.itemsize - offset]
    return torch.empty(shape, dtype=chosen, device=found.device)


def _mapped(
    window: str,
    rank: int | None = None,
    sizes: Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
    offset: int = 0,
) -> Tensor:
    tensor = window_of(window).get_tensor(rank, sizes, dtype, offset)
    if tensor is None:
        raise RuntimeError("The window does not hold the tensor that is registered with it")
    return tensor.detach()


define(
    "window_get_tensor",
    "str window, int? rank=None, SymInt[]? sizes=None, ScalarType? dtype=None, SymInt offset=0",
    "Tensor",
    _mapped,
    _mapped_shape,
)


# Waiting. From 2.11 on the lowering of torch.compile knows that what has been waited for is the
# same memory (_inductor.py); before, it has to be another one.

SAME_MEMORY = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 11)


def _wait_tensors(tensors: Sequence[Tensor], held: Sequence[Tensor] | None = None) -> list[Tensor]:
    """Ends when the operations that write `tensors` have ended; what they read is `held`."""
    works.wait(tensors)
    return list(tensors) if SAME_MEMORY else [t.clone() for t in tensors]


def _waited(tensors: Sequence[Tensor], held: Sequence[Tensor] | None = None) -> list[Tensor]:
    return [torch.empty_like(t) for t in tensors]


def _wait(tensors: Sequence[Tensor], held: Sequence[Tensor]) -> None:
    works.wait(tensors)


_arguments = "Tensor[] tensors, Tensor[]? held=None"
define("wait_tensors", _arguments, "Tensor[]", _wait_tensors, _waited)
define_lowered("_wait_tensors_", "Tensor(a!)[] tensors, Tensor[] held", _wait)
