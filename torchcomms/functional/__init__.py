"""Operations that return new tensors, for torch.compile and for gradients; see docs/compile.md.

    from torchcomms import functional

    @torch.compile(fullgraph=True)
    def step(x):
        return functional.all_reduce(comm, x * 2, torchcomms.ReduceOp.SUM).sum()

The communicator is a TorchComm or the name that `register` has given it. With async_op=True a
function returns an AsyncTensor, or a list of them. Inputs need not be contiguous. Gradients are
those of the sum of all ranks' losses; the backward pass communicates too, so that all ranks have
to run it. `hints` and `timeout` are as for the methods of TorchComm, and so are errors.
"""

from torchcomms import _compile
from torchcomms._when_imported import when_imported
from torchcomms.functional import (  # noqa: F401
    _autograd,
    _in_place,
    _inductor,
    _opaque,
    _ops,
    async_tensor,
)
from torchcomms.functional._api import (
    all_gather,
    all_gather_single,
    all_gather_v,
    all_reduce,
    all_to_all,
    all_to_all_single,
    all_to_all_v_single,
    barrier,
    broadcast,
    gather,
    gather_single,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_single,
    reduce_scatter_v,
    scatter,
    send,
)
from torchcomms.functional._async_tensor import AsyncTensor
from torchcomms.functional._registry import register, register_window


def is_torch_compile_supported() -> bool:
    """Whether compiled functions may communicate with this version of torch: with every one that
    torchcomms accepts."""
    return True


def is_torch_compile_supported_and_enabled() -> bool:
    """Whether methods of communicators are part of graphs, which TORCHCOMMS_PATCH_FOR_COMPILE=0
    turns off."""
    return is_torch_compile_supported() and _compile.is_enabled()


_opaque.register()
when_imported("torch._inductor.lowering", lambda _: _inductor.register())

__all__ = [
    "AsyncTensor",
    "all_gather",
    "all_gather_single",
    "all_gather_v",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "all_to_all_v_single",
    "barrier",
    "broadcast",
    "gather",
    "gather_single",
    "is_torch_compile_supported",
    "is_torch_compile_supported_and_enabled",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_v",
    "register",
    "register_window",
    "scatter",
    "send",
]
