"""Communicators in functions that torch.compile compiles.

torch's tracer, Dynamo, is told what methods of TorchComm and TorchCommWindow are in a graph, once
it is imported; what it is told, torchcomms.functional, is imported when it meets the first of them.
TORCHCOMMS_PATCH_FOR_COMPILE=0 leaves Dynamo alone: then calls break graphs. With 1 methods record
gradients outside compiled code as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from torchcomms import _variables
from torchcomms._when_imported import when_imported

# What has a gradient. Messages and exchanges by numbers in tensors have none.
_RECORDED = (
    "all_reduce",
    "reduce",
    "broadcast",
    "all_gather",
    "all_gather_v",
    "all_gather_single",
    "reduce_scatter",
    "reduce_scatter_v",
    "reduce_scatter_single",
    "all_to_all",
    "all_to_all_single",
    "all_to_all_v_single",
    "scatter",
    "gather",
    "gather_single",
)


def _teach(builder: ModuleType) -> None:
    import torchcomms
    from torchcomms._comms import (
        BatchSendRecv,
        OpOptions,
        ReduceOp,
        SignalCmpOp,
        TorchComm,
        TorchCommWindow,
    )

    # What compiled code may make, of constants.
    made = (ReduceOp, torchcomms.Timeout, *OpOptions.__subclasses__())
    ours = (TorchComm, TorchCommWindow, *made)
    constants = (*ours, SignalCmpOp)
    premul_sum = ReduceOp.PREMUL_SUM
    of_sources: Any = builder.VariableBuilder
    of_values: Any = builder.SourcelessBuilder
    wrap, create = of_sources._wrap, of_values.create

    def _wrap(self: Any, value: Any) -> Any:
        if type(value) in ours or type(value) is BatchSendRecv:
            from torchcomms.functional._dynamo import variable_of

            return variable_of(self, value)
        if isinstance(value, type) and value in made:
            from torchcomms.functional._dynamo import constructor

            return constructor(self, value)
        if value is premul_sum:
            return _create(self.tx, value)
        return wrap(self, value)

    def _create(tx: Any, value: Any) -> Any:
        if type(value) in constants or value is premul_sum:
            from torchcomms.functional._dynamo import variable_of_constant

            return variable_of_constant(value)
        return create(tx, value)

    of_sources._wrap = _wrap
    of_values.create = staticmethod(_create)


def _concerns_gradients(value: Any) -> bool:
    """Whether it is a tensor that requires a gradient, has such, or is on its way to be one."""
    if isinstance(value, torch.Tensor):
        return value.requires_grad
    if isinstance(value, list | tuple):
        return any(_concerns_gradients(one) for one in value)
    return hasattr(type(value), "__torch_function__")


def _recording(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if any(map(_concerns_gradients, (*args, *kwargs.values()))):
            from torchcomms.functional import _eager

            return _eager.call(name, method, self, args, kwargs)
        return method(self, *args, **kwargs)

    return call


def _given() -> str:
    return _variables.text("TORCHCOMMS_PATCH_FOR_COMPILE").lower()


def is_enabled() -> bool:
    """Whether Dynamo is told of communicators."""
    return _given() not in ("0", "false", "no", "n")


def register() -> None:
    if not is_enabled():
        return
    when_imported("torch._dynamo.variables.builder", _teach)
    if _given():
        from torchcomms._comms import TorchComm

        for name in _RECORDED:
            setattr(TorchComm, name, _recording(name, getattr(TorchComm, name)))
