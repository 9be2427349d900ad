"""Loops: operations that are executed once for each unit of the data."""

from __future__ import annotations

from types import TracebackType

from mscclpp.language.record import current_record
from mscclpp.language.source import Call

__all__ = ["LoopIterationContext"]


class LoopIterationContext:
    """What is called inside `with` is executed for one unit of the data after the other.

    On each thread block the operations of the body become one `pipeline`. Loops do not nest.

    Args:
        unit: bytes of one iteration.
        num_chunks: chunks that the loop goes through; each operation of the body has as many.
    """

    def __init__(self, unit: int, num_chunks: int) -> None:
        call = Call("LoopIterationContext")
        for what, value in (("unit", unit), ("num_chunks", num_chunks)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                call.fail(f"{what} must be a positive integer, not {value!r}")
        self.unit = unit
        self.num_chunks = num_chunks

    def __enter__(self) -> LoopIterationContext:
        call = Call("LoopIterationContext")
        self._record = current_record(call)
        self._record.begin_loop(call)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._record.end_loop(self.unit, self.num_chunks)
