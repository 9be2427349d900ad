"""What the executor of MSCCL++ can hold, and what of a plan it cannot.

Its structures have fixed sizes that nothing checks there. Operations are made so that they keep to
them: what one of our calls asks for beyond is divided among several operations (`divided`), and
fusion stops at them. What cannot be divided is reported (`exceeded`), and is no error: these are
limits of that executor, not of the language.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mscclpp.language.instructions import INSTRUCTIONS
from mscclpp.language.plan import Gpu, LocalPart, Operation, Part, Plan, ThreadBlock
from mscclpp.language.source import ProgramError
from mscclpp.language.types import ChannelType, ReduceOperationType

CHANNELS_PER_OPERATION = 8
PARTS_PER_OPERATION = 10  # sources, and again destinations
REMOTE_PARTS_PER_OPERATION = 8
CHANNELS_PER_BLOCK = 16  # of each type
OPERATIONS_PER_BLOCK = 64
OPERATIONS_PER_PIPELINE = 16
BARRIERS_PER_RANK = 16
SEMAPHORES_PER_OPERATION = 16
REDUCED_BYTES = 16  # at a time; what is left over is not reduced


def fits(op: Operation) -> bool:
    """Whether an operation has no more channels and chunks than that executor can hold."""
    return (
        len(op.channel_ids) <= CHANNELS_PER_OPERATION
        and _parts_fit(op.src_buff)
        and _parts_fit(op.dst_buff)
    )


def _parts_fit(parts: tuple[Part, ...]) -> bool:
    remote = sum(not isinstance(part, LocalPart) for part in parts)
    return len(parts) <= PARTS_PER_OPERATION and remote <= REMOTE_PARTS_PER_OPERATION


def divided(gpu: Gpu, block: ThreadBlock, ops: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """Reductions of too many chunks become several, each of which goes on with the result."""
    return tuple(part for op in ops for part in _divided(op))


def _divided(op: Operation) -> Iterator[Operation]:
    if not INSTRUCTIONS[op.name].reduces or fits(op):
        yield op
        return
    first, *others = op.src_buff
    (dst,) = op.dst_buff
    while others:
        taken = others[:1]
        while len(taken) < len(others) and _parts_fit((first, *others[: len(taken) + 1])):
            taken = others[: len(taken) + 1]
        others = others[len(taken) :]
        yield replace(op, src_buff=(first, *taken), dst_buff=(dst,))
        if others:
            if any(_touches(dst, other) for other in others):
                raise ProgramError(
                    f"a reduction of {len(op.src_buff)} chunks is done in several steps, and the "
                    "first would overwrite a source of the next: name another dst_chunk",
                    *op.locations,
                )
            yield Operation(name="nop", locations=op.locations)
            first = dst


def _touches(part: Part, other: Part) -> bool:
    same = isinstance(part, LocalPart) and isinstance(other, LocalPart) and part.type is other.type
    return same and part.index < other.index + other.size and other.index < part.index + part.size


def exceeded(plan: Plan) -> list[str]:
    """What of a plan MSCCL++'s executor cannot run, or runs as something else; a line for each."""
    lines = [line for gpu in plan.gpus for line in _of_rank(gpu)]
    if plan.buffer_alignment % REDUCED_BYTES and any(map(_reduces, plan.gpus)):
        lines.append(
            f"buffer_alignment {plan.buffer_alignment}: of chunks that are no multiple of "
            f"{REDUCED_BYTES} bytes the rest is not reduced"
        )
    return lines


def _reduces(gpu: Gpu) -> bool:
    ops = (op for block in gpu.threadblocks for outer in block.ops for op in (outer, *outer.ops))
    return any(INSTRUCTIONS[op.name].reduces for op in ops)


def _of_rank(gpu: Gpu) -> Iterator[str]:
    barriers = set()
    for block in gpu.threadblocks:
        where = f"rank {gpu.id}, thread block {block.id}"
        for refs in block.channels:
            if len(refs.channel_ids) > CHANNELS_PER_BLOCK:
                yield (
                    f"{where}: {len(refs.channel_ids)} {refs.channel_type.value} channels, "
                    f"{CHANNELS_PER_BLOCK} at most"
                )
        flat = [(op, inner) for op in block.ops for inner in (op, *op.ops)]
        if len(flat) > OPERATIONS_PER_BLOCK:
            yield f"{where}: {len(flat)} operations, {OPERATIONS_PER_BLOCK} at most"
        for outer, op in flat:
            barriers |= {op.barrier_id} - {None}
            for why in _of_operation(op):
                line = f"{op.locations[0]}: " if op.locations else ""
                yield f"{line}{where}, '{op.name}': {why}"
            if op is outer and len(op.ops) > OPERATIONS_PER_PIPELINE:
                yield f"{where}: {len(op.ops)} in a pipeline, {OPERATIONS_PER_PIPELINE} at most"
    if len(barriers) > BARRIERS_PER_RANK:
        yield f"rank {gpu.id}: {len(barriers)} barriers, {BARRIERS_PER_RANK} at most"


def _of_operation(op: Operation) -> Iterator[str]:
    if not fits(op):
        yield (
            f"{len(op.channel_ids)} channels, {len(op.src_buff)} sources, {len(op.dst_buff)} "
            f"destinations; {CHANNELS_PER_OPERATION}, {PARTS_PER_OPERATION} and "
            f"{PARTS_PER_OPERATION} at most, {REMOTE_PARTS_PER_OPERATION} of other ranks"
        )
    if len(op.semaphore_ids) > SEMAPHORES_PER_OPERATION:
        yield f"{len(op.semaphore_ids)} semaphores, {SEMAPHORES_PER_OPERATION} at most"
    if op.name == "get" and any(
        src.index != dst.index for src, dst in zip(op.src_buff, op.dst_buff, strict=False)
    ):
        yield "the places of source and destination are mixed up, where they differ"
    if op.name == "ppkt" and op.channel_type is ChannelType.port:
        yield "a port sends plain data there, without the flags of packets"
    if op.name == "glre":
        yield "it is known there only together with a broadcast of its result"
    if op.reduce_op not in (None, ReduceOperationType.sum):
        yield f"{op.reduce_op.value} is executed as a sum"
