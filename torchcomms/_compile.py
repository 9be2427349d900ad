"""Communicators in functions that torch.compile compiles.

torch's tracer, Dynamo, is told what methods of TorchComm and TorchCommWindow are in a graph, once
it is imported; what it is told, torchcomms.functional, is imported when it meets the first of them.
TORCHCOMMS_PATCH_FOR_COMPILE=0 leaves Dynamo alone: then calls break graphs.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from torchcomms._when_imported import when_imported


def _teach(builder: ModuleType) -> None:
    import torchcomms
    from torchcomms._comms import OpOptions, ReduceOp, SignalCmpOp, TorchComm, TorchCommWindow

    # What compiled code may make, of constants.
    made = (ReduceOp, torchcomms.Timeout, *OpOptions.__subclasses__())
    ours = (TorchComm, TorchCommWindow, *made)
    constants = (*ours, SignalCmpOp)
    premul_sum = ReduceOp.PREMUL_SUM
    of_sources: Any = builder.VariableBuilder
    of_values: Any = builder.SourcelessBuilder
    wrap, create = of_sources._wrap, of_values.create

    def _wrap(self: Any, value: Any) -> Any:
        if type(value) in ours:
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


def is_enabled() -> bool:
    """Whether TORCHCOMMS_PATCH_FOR_COMPILE lets Dynamo be told."""
    given = os.environ.get("TORCHCOMMS_PATCH_FOR_COMPILE", "1")
    return given.lower() not in ("0", "false", "no", "n")


def register() -> None:
    if is_enabled():
        when_imported("torch._dynamo.variables.builder", _teach)
