"""torch.distributed's functions, on communicators of torchcomms or on torch's own.

    from torchcomms import distwrap as dist

    dist.init_process_group("ctran", use_torchcomms=True)
    dist.all_reduce(tensor)

With `use_torchcomms` every group is one or several communicators of torchcomms behind torch's own
ProcessGroup, so DDP, FSDP and the rest work on it too. Without it the same functions are torch's,
with what its gloo lacks added. What is not listed here is torch.distributed's own.
"""

from typing import Any

import torch.distributed

from torchcomms.distwrap.collectives import (
    P2POp,
    _make_nccl_premul_sum,
    all_gather,
    all_gather_into_tensor,
    all_gather_object,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    batch_isend_irecv,
    broadcast,
    broadcast_object_list,
    gather,
    gather_object,
    irecv,
    isend,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_quantized,
    reduce_scatter_tensor,
    scatter,
    scatter_object_list,
    send,
)
from torchcomms.distwrap.groups import (
    destroy_process_group,
    get_backend,
    get_comm,
    get_mem_allocator,
    init_process_group,
    new_group,
    new_window,
    register_mem_pool,
    split_group,
    torchcomms_is_enabled,
)

__all__ = [
    "P2POp",
    "_make_nccl_premul_sum",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_backend",
    "get_comm",
    "get_mem_allocator",
    "init_process_group",
    "irecv",
    "isend",
    "new_group",
    "new_window",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_quantized",
    "reduce_scatter_tensor",
    "register_mem_pool",
    "scatter",
    "scatter_object_list",
    "send",
    "split_group",
    "torchcomms_is_enabled",
]


def __getattr__(name: str) -> Any:
    try:
        return getattr(torch.distributed, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
