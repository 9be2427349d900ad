"""What a program does, for people."""

from __future__ import annotations

from collections.abc import Iterator
from os.path import basename

from mscclpp.language.instructions import INSTRUCTIONS
from mscclpp.language.plan import Gpu, Operation, Part, Plan, ThreadBlock
from mscclpp.language.references import buffers_of, channel_ids
from mscclpp.language.source import Location
from mscclpp.proof import Report


def explain(plan: Plan, report: Report) -> str:
    """What was proved, and what each thread block does, operation by operation, with its line."""
    return "\n".join((_head(plan), *_proof(report), *_ranks(plan))) + "\n"


def _head(plan: Plan) -> str:
    gpu = plan.gpus[0]
    place = "in place" if plan.inplace else "not in place"
    scratch = max(one.scratch_chunks for one in plan.gpus)
    return (
        f"{plan.name}: {plan.collective} of {len(plan.gpus)} ranks, {place}; chunks: "
        f"{gpu.input_chunks} of input, {gpu.output_chunks} of output, {scratch} of scratch"
    )


def _proof(report: Report) -> Iterator[str]:
    if not report:
        yield f"wrong: {report.findings[0]}"
        return
    if report.lowered.get("open"):
        yield "proved free of races and deadlocks; no result is promised"
        return
    yield "proved right, for any count of elements, executed any number of times in a row"
    yield f"  in place: {'yes' if report.in_place_safe else 'through a copy'}"
    yield f"  sums in rank order: {'yes' if report.rank_order else 'no'}"
    yield f"  sums in one go: {'yes' if report.flat else 'no'}"


def _ranks(plan: Plan) -> Iterator[str]:
    for gpu in plan.gpus:
        for block in gpu.threadblocks:
            yield f"rank {gpu.id}, thread block {block.id}"
            for op in block.ops:
                yield from _operation(gpu, block, op, "  ")


def _operation(gpu: Gpu, block: ThreadBlock, op: Operation, indent: str) -> Iterator[str]:
    where = ", ".join(_line(location) for location in op.locations)
    yield f"{indent}{_text(gpu, block, op)}" + (f"  ({where})" if where else "")
    for inner in op.ops:
        yield from _operation(gpu, block, inner, indent + "  ")


def _line(location: Location) -> str:
    return f"{basename(location.file)}:{location.line}"


def _text(gpu: Gpu, block: ThreadBlock, op: Operation) -> str:
    def parts(found: tuple[Part, ...]) -> str:
        return ", ".join(_part(gpu, block, op, part) for part in found)

    text = op.name
    if op.dst_buff:
        text += f" {parts(op.dst_buff)} = {parts(op.src_buff)}"
    if op.channel_type is not None and (op.channel_ids and not op.dst_buff):
        ends = gpu.connections(op.channel_type)
        numbers = channel_ids(block, op.channel_type)
        peers = ", ".join(str(ends[numbers[place]]) for place in op.channel_ids)
        text += f" {'from' if INSTRUCTIONS[op.name].waits else 'to'} {peers}"
    if op.barrier_id is not None:
        text += f" {op.barrier_id} of {op.num_threadblocks} thread blocks"
    if op.semaphore_ids:
        text += " " + ", ".join(map(str, op.semaphore_ids))
    if op.tbg_info is not None:
        text += f", share {op.tbg_info.tb_id} of {op.tbg_info.tbg_size}"
    if op.iter_context is not None:
        text += f" of {op.iter_context.unit_size} bytes at a time"
    return text


def _part(gpu: Gpu, block: ThreadBlock, op: Operation, part: Part) -> str:
    buffers = buffers_of(gpu, block, op, part)
    chunks = str(part.index) if part.size == 1 else f"{part.index}:{part.index + part.size}"
    text = f"{buffers[0][1].name}[{chunks}]"
    ranks = [rank for rank, _ in buffers]
    if ranks == [gpu.id]:
        return text
    return f"{text} of " + (f"ranks {ranks}" if len(ranks) > 1 else str(ranks[0]))
