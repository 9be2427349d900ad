"""How torch.compile's Inductor lowers the operations: from torch 2.11 on. Before, and for those
that are not here, it calls them as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchcomms.functional._ops import SAME_MEMORY


def register() -> None:
    """Called once, when Inductor has been imported."""
    if not SAME_MEMORY:
        return
    from torch._inductor import ir
    from torch._inductor.lowering import lowerings, register_lowering
    from torch._inductor.virtualized import V

    operations = torch.ops.torchcomms
    clone = lowerings[torch.ops.aten.clone.default]

    def changing(name: str) -> None:
        """The copy that is changed is Inductor's: whatever computes it writes it in place."""
        in_place = getattr(operations, f"_{name}_").default

        @register_lowering(
            getattr(operations, f"torchcomm_{name}").default, type_promotion_kind=None
        )
        def lowered(comm: str, tensor: Any, *args: Any, **kwargs: Any) -> Any:
            output = clone(tensor, memory_format=torch.contiguous_format)
            output.realize()
            output = ir.ExternKernel.require_contiguous(output)
            # It may be written after the last use that Inductor sees.
            V.graph.never_reuse_buffers.add(output.get_name())
            ir.FallbackKernel.create(in_place, comm, output, *args, **kwargs)
            return output

    for name in ("all_reduce", "broadcast", "reduce"):
        changing(name)

    @register_lowering(operations.torchcomm_wait_tensors.default, type_promotion_kind=None)
    def wait_tensors(tensors: Sequence[Any], held: Sequence[Any] | None = None) -> list[Any]:
        held = held or ()
        for tensor in (*tensors, *held):
            tensor.realize()
        in_place = operations._wait_tensors_.default
        ir.FallbackKernel.create(in_place, list(tensors), list(held))
        return list(tensors)
