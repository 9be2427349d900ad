"""What torch's own gloo lacks, in terms of what it has."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor

from torchcomms.distwrap.groups import Group, get_backend


class Works:
    """Several works as one; `after` is done once they have ended."""

    def __init__(self, works: list[Any], after: Any = None) -> None:
        self._works = works
        self._after = after

    def is_completed(self) -> bool:
        if not all(work.is_completed() for work in self._works):
            return False
        if all(work.is_success() for work in self._works):
            self._finish()  # the result is there when this says so
        return True

    def wait(self, timeout: Any = None) -> bool:
        for work in self._works:
            work.wait() if timeout is None else work.wait(timeout)
        self._finish()
        return True

    def _finish(self) -> None:
        after, self._after = self._after, None
        if after is not None:
            after()


def needed(group: Group) -> bool:
    """Whether the group is torch's gloo."""
    if isinstance(group, int):  # GroupMember.NON_GROUP_MEMBER
        return False  # torch warns
    return str(dist.get_backend(group)) == "gloo" and get_backend(group) == "gloo"


def uneven(tensors: list[Tensor]) -> bool:
    return any(tensor.numel() != tensors[0].numel() for tensor in tensors)


def _require_parts(operation: str, parts: list[Tensor], group: Group) -> None:
    """Before anything is sent."""
    size = dist.get_world_size(group)
    if len(parts) != size:
        raise ValueError(f"{operation}: a list has {len(parts)} tensors; there are {size} ranks")


def _require_room(operation: str, given: Tensor, room: Tensor) -> None:
    if given.numel() != room.numel():
        raise ValueError(
            f"{operation}: this rank has {given.numel()} elements for itself, and takes "
            f"{room.numel()}"
        )


def _finished(works: Works, async_op: bool) -> Works | None:
    if async_op:
        return works
    works.wait()
    return None


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Group, async_op: bool
) -> Works | None:
    """A broadcast from every rank."""
    _require_parts("all_gather", tensor_list, group)
    own = tensor_list[dist.get_rank(group)]
    _require_room("all_gather", tensor, own)
    own.copy_(tensor.reshape(own.shape))
    works = [
        dist.broadcast(part, group=group, async_op=True, group_src=rank)
        for rank, part in enumerate(tensor_list)
    ]
    return _finished(Works(works), async_op)


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: Any, group: Group, async_op: bool
) -> Works | None:
    """A reduction to every rank."""
    _require_parts("reduce_scatter", input_list, group)
    _require_room("reduce_scatter", input_list[dist.get_rank(group)], output)
    parts = [part.clone() for part in input_list]
    works = [
        dist.reduce(part, op=op, group=group, async_op=True, group_dst=rank)
        for rank, part in enumerate(parts)
    ]
    own = parts[dist.get_rank(group)]
    return _finished(Works(works, lambda: output.copy_(own.reshape(output.shape))), async_op)


def all_to_all(
    outputs: list[Tensor], inputs: list[Tensor], group: Group, async_op: bool
) -> Works | None:
    """A send to, and a receive from, every other rank."""
    rank = dist.get_rank(group)
    _require_parts("all_to_all", outputs, group)
    _require_parts("all_to_all", inputs, group)
    _require_room("all_to_all", inputs[rank], outputs[rank])
    works: list[Any] = []
    for peer in range(dist.get_world_size(group)):
        if peer == rank:
            outputs[peer].copy_(inputs[peer].reshape(outputs[peer].shape))
            continue
        works.append(dist.irecv(outputs[peer], group=group, group_src=peer))
        works.append(dist.isend(inputs[peer], group=group, group_dst=peer))
    return _finished(Works(works), async_op)
