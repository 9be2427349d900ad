"""Where the threads of a block meet: `nop` operations, as asked for and as data needs it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from mscclpp.language.accesses import Access, accesses
from mscclpp.language.plan import Gpu, Operation, Pass, ThreadBlock
from mscclpp.language.types import SyncType


def syncs(auto_sync: bool) -> Pass:
    """The pass that inserts `nop`, never two in a row.

    An operation's `data_sync` says whether one comes before it, after it, or both. With
    `auto_sync` one also comes between two operations of a thread block that reach the same chunk,
    if one of them writes it: the threads of a block divide each operation's data in their own way.

    Iterations of a pipeline work on different data, so nothing is inserted between them.
    """
    return partial(_with_syncs, auto_sync)


def _with_syncs(
    auto_sync: bool, gpu: Gpu, block: ThreadBlock, ops: tuple[Operation, ...]
) -> tuple[Operation, ...]:
    result: list[Operation] = []
    since: list[Access] = []  # since the threads of the block met

    def meet(op: Operation) -> None:
        since.clear()
        if not result or result[-1].name != "nop":
            result.append(Operation(name="nop", locations=op.locations))
        else:
            lines = dict.fromkeys((*result[-1].locations, *op.locations))
            result[-1] = replace(result[-1], locations=tuple(lines))

    for op in ops:
        if op.name == "nop":
            meet(op)
            continue
        touched = accesses(gpu, block, op)
        hazard = auto_sync and any(a.conflicts(b) for a in since for b in touched)
        if hazard or op.data_sync.meets_before:
            meet(op)
        result.append(replace(op, data_sync=SyncType.none))
        since += touched
        if op.name == "barrier":
            since.clear()
        if op.data_sync.meets_after:
            meet(op)
    return tuple(result)
