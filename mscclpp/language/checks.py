"""What is wrong with a program as a whole: signals without waits, chunks that are not there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from mscclpp.language.instructions import INSTRUCTIONS
from mscclpp.language.plan import Gpu, Operation, Plan, SwitchPart, ThreadBlock
from mscclpp.language.references import buffers_of, channel_ids
from mscclpp.language.source import Location, ProgramError
from mscclpp.language.types import ChannelType


def check_switch_chunks(plan: Plan) -> None:
    """Raises ProgramError if a switch channel reaches chunks that some rank does not have."""
    for gpu, block, op, _ in _operations(plan):
        for part in (*op.src_buff, *op.dst_buff):
            if not isinstance(part, SwitchPart):
                continue
            for rank, buffer in buffers_of(gpu, block, op, part):
                end, chunks = part.index + part.size, plan.gpus[rank].chunks(buffer)
                if end > chunks:
                    raise ProgramError(
                        f"rank {gpu.id}, thread block {block.id}: [{part.index}:{end}] is not "
                        f"within the {chunks} chunks of {buffer.name} of rank {rank}",
                        *op.locations,
                    )


# A direction of one connection: its type, from, to, and which of several it is; and in which kind
# of loop it is used.
_Direction = tuple[ChannelType, int, int, int, tuple[int, int] | None]


@dataclass
class _Uses:
    signals: list[Location | None] = field(default_factory=list)
    waits: list[Location | None] = field(default_factory=list)


def check_pairs(plan: Plan) -> None:
    """Raises ProgramError if a connection is signalled more, or less, often than it is waited on.

    A signal in a loop has its wait in a loop of the same kind.
    """
    uses: dict[_Direction, _Uses] = defaultdict(_Uses)
    for gpu, block, op, loop in _operations(plan):
        instruction = INSTRUCTIONS[op.name]
        if op.channel_type is None or not (instruction.signals or instruction.waits):
            continue
        for place in op.channel_ids:
            number = channel_ids(block, op.channel_type)[place]
            ends = gpu.connections(op.channel_type)
            peer, which = ends[number], ends[:number].count(ends[number])
            line = op.locations[0] if op.locations else None
            if instruction.signals:
                uses[op.channel_type, gpu.id, peer, which, loop].signals.append(line)
            else:
                uses[op.channel_type, peer, gpu.id, which, loop].waits.append(line)
    for (kind, source, target, which, loop), found in uses.items():
        sent, awaited = len(found.signals), len(found.waits)
        if sent == awaited:
            continue
        surplus = found.signals[awaited:] or found.waits[sent:]
        where = "" if loop is None else f", in loops of unit {loop[0]} and {loop[1]} chunks"
        raise ProgramError(
            f"rank {source} signals rank {target} {_times(sent)} over {kind.value} channel "
            f"{which} between them, and rank {target} waits {_times(awaited)}{where}",
            *[line for line in surplus[:1] if line is not None],
        )


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _operations(
    plan: Plan,
) -> Iterator[tuple[Gpu, ThreadBlock, Operation, tuple[int, int] | None]]:
    """Every operation, and what kind of loop it is in."""
    for gpu in plan.gpus:
        for block in gpu.threadblocks:
            for op in block.ops:
                context = op.iter_context
                if context is None:
                    yield gpu, block, op, None
                    continue
                for inner in op.ops:
                    yield gpu, block, inner, (context.unit_size, context.num_chunks)
