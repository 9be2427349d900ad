"""The operations of torch.distributed, on either kind of group.

Without `async_op` an operation on CPU tensors has ended when the call returns; with it the call
returns a work. Ranks in arguments are those of the default group unless the name says `group_`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from torchcomms import CommError, ReduceOp
from torchcomms.distwrap import fallback
from torchcomms.distwrap.groups import Group, get_comm

# As a P2POp takes them.
P2POp = dist.P2POp
isend = dist.isend
irecv = dist.irecv
_SUM = dist.ReduceOp.SUM


def all_reduce(tensor: Tensor, op: Any = _SUM, group: Group = None, async_op: bool = False) -> Any:
    """Replaces `tensor` by the reduction of all ranks' tensors."""
    return dist.all_reduce(tensor, op, group, async_op)


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Any:
    """Replaces `tensor` by that of the source: `src`, or `group_src` as counted in the group."""
    return dist.broadcast(tensor, src, group, async_op, group_src)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = _SUM,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Any:
    """Replaces the destination's `tensor` by the reduction of all ranks' tensors."""
    return dist.reduce(tensor, dst, op, group, async_op, group_dst)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Group = None, async_op: bool = False
) -> Any:
    """Fills `tensor_list` with all ranks' tensors, which may differ in size."""
    if fallback.needed(group) and fallback.uneven(tensor_list):
        return fallback.all_gather(tensor_list, tensor, group, async_op)
    return dist.all_gather(tensor_list, tensor, group, async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Group = None, async_op: bool = False
) -> Any:
    """Fills `output_tensor` with all ranks' tensors of one size, one after another."""
    return dist.all_gather_into_tensor(output_tensor, input_tensor, group, async_op)


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: Any = _SUM,
    group: Group = None,
    async_op: bool = False,
) -> Any:
    """Gives rank r the reduction of all ranks' `input_list[r]`, which may differ in size."""
    if fallback.needed(group):
        return fallback.reduce_scatter(output, input_list, op, group, async_op)
    return dist.reduce_scatter(output, input_list, op, group, async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Any = _SUM, group: Group = None, async_op: bool = False
) -> Any:
    """Gives rank r the reduction of the r-th of as many equal parts of `input` as there are
    ranks."""
    return dist.reduce_scatter_tensor(output, input, op, group, async_op)


def reduce_scatter_quantized(
    output: Tensor,
    input: Tensor,
    op: Any = _SUM,
    seed: Tensor | None = None,
    group: Group = None,
    async_op: bool = False,
) -> Any:
    """As `reduce_scatter_tensor`, a sum or an average of float32, sending bfloat16.

    See `TorchComm.reduce_scatter_quantized`, also for `seed`.

    Raises:
        NotImplementedError: the group's backend has no such operation.
    """
    comm = get_comm(group, output.device)
    average = op == dist.ReduceOp.AVG
    if not average and op != _SUM:
        raise ValueError(f"reduce_scatter_quantized sums or averages; op is {op}")
    own_op = ReduceOp.AVG if average else ReduceOp.SUM
    try:
        return comm.reduce_scatter_quantized(output, input, own_op, seed, async_op)
    except CommError as error:
        if "not supported by backend" not in str(error):
            raise
        raise NotImplementedError(
            f"backend {comm.get_backend()} has no reduce_scatter_quantized for "
            f"{output.device.type}; use reduce_scatter_tensor"
        ) from error


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: Group = None,
    async_op: bool = False,
) -> Any:
    """Sends `input_tensor_list[r]` to rank r, which gets it as the entry of this rank."""
    if fallback.needed(group):
        return fallback.all_to_all(output_tensor_list, input_tensor_list, group, async_op)
    return dist.all_to_all(output_tensor_list, input_tensor_list, group, async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Group = None,
    async_op: bool = False,
) -> Any:
    """Sends part r of `input` to rank r. Parts are rows of dimension 0: as many for each rank,
    unless split sizes say how many."""
    return dist.all_to_all_single(
        output, input, output_split_sizes, input_split_sizes, group, async_op
    )


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Any:
    """Gives rank r the source's `scatter_list[r]`, as `tensor`."""
    return dist.scatter(tensor, scatter_list, src, group, async_op, group_src)


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Any:
    """Fills the destination's `gather_list` with all ranks' tensors of one size."""
    return dist.gather(tensor, gather_list, dst, group, async_op, group_dst)


def barrier(
    group: Group = None, async_op: bool = False, device_ids: list[int] | None = None
) -> Any:
    """Waits until every rank has called it."""
    return dist.barrier(group, async_op, device_ids)


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Sends `tensor` to a receive that names this rank and `tag`; waits until it may be changed."""
    dist.send(tensor, dst, group, tag, group_dst)


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receives into `tensor` the next message of that rank with that tag; returns the rank."""
    return int(dist.recv(tensor, src, group, tag, group_src))


def batch_isend_irecv(p2p_op_list: list[dist.P2POp]) -> list[Any]:
    """Issues sends and receives together, so that none waits for another; returns works.

    With torchcomms one work stands for all. Tags are kept.
    """
    return list(dist.batch_isend_irecv(p2p_op_list))


def all_gather_object(object_list: list[Any], obj: Any, group: Group = None) -> None:
    """Fills `object_list` with all ranks' objects. They are pickled: trust the other ranks, or use
    torchcomms.objcol."""
    dist.all_gather_object(object_list, obj, group)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Group = None,
    group_dst: int | None = None,
) -> None:
    """Fills the destination's list with all ranks' objects. They are pickled."""
    dist.gather_object(obj, object_gather_list, dst, group, group_dst)


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Group = None,
    group_src: int | None = None,
) -> None:
    """Gives rank r the source's r-th object, as the output list's first. They are pickled."""
    dist.scatter_object_list(
        scatter_object_output_list, scatter_object_input_list, src, group, group_src
    )


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Group = None,
    device: torch.device | None = None,
    group_src: int | None = None,
) -> None:
    """Replaces the objects of the list by the source's. They are pickled."""
    dist.broadcast_object_list(object_list, src, group, device, group_src)


def _make_nccl_premul_sum(factor: float | Tensor) -> Any:
    """A sum before which every rank multiplies its own contribution by its own factor."""
    return dist._make_nccl_premul_sum(factor)
