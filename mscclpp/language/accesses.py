"""What an operation reads and writes: which chunks of which rank's buffers, in which form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mscclpp.language.instructions import INSTRUCTIONS, Form
from mscclpp.language.plan import Gpu, Operation, Part, ThreadBlock
from mscclpp.language.references import buffers_of, copies_packets
from mscclpp.language.types import BufferType


@dataclass(frozen=True)
class Access:
    rank: int
    buffer: BufferType
    index: int
    size: int
    writes: bool
    packets: bool

    @property
    def extent(self) -> tuple[int, int]:
        return (self.index, self.size)

    def overlaps(self, other: Access) -> bool:
        return (
            (self.rank, self.buffer) == (other.rank, other.buffer)
            and self.index < other.index + other.size
            and other.index < self.index + self.size
        )

    def conflicts(self, later: Access) -> bool:
        """Whether the threads of a block must meet between this access and a later one.

        Packets that are read after they were written need no meeting: their flags say when they
        are there. Packets that are written again after they were read do need one.
        """
        if not self.overlaps(later) or not (self.writes or later.writes):
            return False
        arrives = self.writes and self.packets and later.packets and not later.writes
        return not arrives


def accesses(gpu: Gpu, block: ThreadBlock, op: Operation) -> tuple[Access, ...]:
    """All accesses of an operation; of a pipeline, those of its body."""
    if op.ops:
        return tuple(access for inner in op.ops for access in accesses(gpu, block, inner))
    return tuple(_accesses(gpu, block, op))


def _accesses(gpu: Gpu, block: ThreadBlock, op: Operation) -> Iterator[Access]:
    instruction = INSTRUCTIONS[op.name]
    reads = Form.packets if copies_packets(op) else instruction.reads
    sides: tuple[tuple[tuple[Part, ...], Form, bool], ...] = (
        (op.src_buff, reads, False),
        (op.dst_buff, instruction.writes, True),
    )
    for parts, form, writes in sides:
        for number, part in enumerate(parts):
            packets = form is Form.packets or (form is Form.first_data and number > 0)
            for rank, buffer in buffers_of(gpu, block, op, part):
                yield Access(rank, buffer, part.index, part.size, writes, packets)
