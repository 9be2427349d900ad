"""Whether all that a plan refers to is there, and its numbers mean something."""

from __future__ import annotations

from collections.abc import Iterator

from mscclpp.language.instructions import INSTRUCTIONS, Form
from mscclpp.language.plan import (
    ChannelRefs,
    Gpu,
    LocalPart,
    Operation,
    Part,
    Plan,
    RemoteBufferRefs,
    RemotePart,
    SwitchChannels,
    ThreadBlock,
)
from mscclpp.language.thread_block_group import MOST_THREADS
from mscclpp.language.types import BufferType, ChannelType


def check_references(plan: Plan) -> Iterator[tuple[str, str]]:
    """(where, why) of each number in a plan that names nothing, or means nothing."""
    if plan.min_message_size > plan.max_message_size:
        sizes = f"{plan.min_message_size} to {plan.max_message_size}"
        yield "plan.min_message_size", f"no message has {sizes} bytes"
    if not 1 <= plan.num_threads_per_block <= MOST_THREADS:
        threads = plan.num_threads_per_block
        yield (
            "plan.num_threads_per_block",
            f"a block has 1 to {MOST_THREADS} threads, not {threads}",
        )
    for number, gpu in enumerate(plan.gpus):
        place = f"plan.gpus[{number}]"
        if gpu.id != number:
            yield f"{place}.id", f"gpus are listed by rank; this is {gpu.id}"
            return  # what follows would be about other ranks
    for gpu in plan.gpus:
        place = f"plan.gpus[{gpu.id}]"
        yield from _gpu(plan, gpu, place)
        for number, block in enumerate(gpu.threadblocks):
            yield from _Block(plan, gpu, block).check(f"{place}.threadblocks[{number}]")


def _gpu(plan: Plan, gpu: Gpu, place: str) -> Iterator[tuple[str, str]]:
    ranks = len(plan.gpus)
    for entry in gpu.channels:
        groups = entry.rank_groups if isinstance(entry, SwitchChannels) else ()
        if any(group.size != len(group.ranks) for group in groups):
            yield f"{place}.channels", "the size of a group is the number of its ranks"
        if isinstance(entry, SwitchChannels) != (entry.channel_type is ChannelType.switch):
            yield f"{place}.channels", f"these are no {entry.channel_type.value} channels"
    ids = [block.id for block in gpu.threadblocks]
    if len(set(ids)) < len(ids):
        yield f"{place}.threadblocks", f"two have the same id: {ids}"
    named = [rank for kind in ChannelType for rank in gpu.connections(kind)]
    named += [rank for _, group in gpu.switches() for rank in group]
    named += [buffer.rank for buffer in gpu.remote_buffers]
    for rank in named:
        if rank >= ranks:
            yield place, f"there is no rank {rank}"


class _Block:
    def __init__(self, plan: Plan, gpu: Gpu, block: ThreadBlock) -> None:
        self.plan, self.gpu, self.block = plan, gpu, block

    def check(self, place: str) -> Iterator[tuple[str, str]]:
        for refs in self.block.channels:
            there = self.counts(refs.channel_type)
            for number in refs.channel_ids:
                if number >= there:
                    kind = refs.channel_type.value
                    yield f"{place}.channels", f"the rank has no {kind} channel {number}"
        for buffers in self.block.remote_buffer_refs:
            for number in buffers.remote_buffer_ids:
                if number >= len(self.gpu.remote_buffers):
                    yield f"{place}.remote_buffer_refs", f"there is no remote buffer {number}"
        for number, op in enumerate(self.block.ops):
            yield from self.operation(op, f"{place}.ops[{number}]")

    def counts(self, kind: ChannelType) -> int:
        if kind is ChannelType.switch:
            return len(self.gpu.switches())
        return len(self.gpu.connections(kind))

    def operation(self, op: Operation, place: str) -> Iterator[tuple[str, str]]:
        if op.name not in INSTRUCTIONS:
            yield f"{place}.name", f"there is no operation {op.name!r}"
            return
        if op.name == "pipeline" and op.iter_context is None:
            yield place, "a pipeline needs an iter_context"
        if op.name == "barrier" and op.barrier_id is None:
            yield place, "a barrier needs a barrier_id"
        for number in op.channel_ids:
            if op.channel_type is None:
                yield place, "channel_ids need a channel_type"
            elif number >= len(channel_ids(self.block, op.channel_type)):
                kind = op.channel_type.value
                yield place, f"the thread block has no {kind} channel {number}"
        for number in op.semaphore_ids:
            if number >= len(self.gpu.semaphores):
                yield place, f"there is no semaphore {number}"
        if op.tbg_info is not None and op.tbg_info.tb_id >= op.tbg_info.tbg_size:
            yield place, f"{op.tbg_info.tb_id} is no place in a group of {op.tbg_info.tbg_size}"
        for part in (*op.src_buff, *op.dst_buff):
            yield from self.part(op, part, place)
        yield from self.packets(op, place)
        for number, inner in enumerate(op.ops):
            yield from self.operation(inner, f"{place}.ops[{number}]")

    def packets(self, op: Operation, place: str) -> Iterator[tuple[str, str]]:
        """A packet is twice as large as its data, and its reader waits for its flags: in a buffer
        of the user's it would overwrite data, or never be recognized."""
        instruction = INSTRUCTIONS[op.name]
        reads = Form.packets if copies_packets(op) else instruction.reads
        for form, parts in ((reads, op.src_buff), (instruction.writes, op.dst_buff)):
            if form is Form.data:
                continue
            for part in parts[1:] if form is Form.first_data else parts:
                for rank, kind in self.buffers(op, part):
                    if kind is not BufferType.scratch:
                        why = f"{op.name!r} has packets in {kind.name} of rank {rank}"
                        yield place, f"{why}: they lie in scratch only"

    def part(self, op: Operation, part: Part, place: str) -> Iterator[tuple[str, str]]:
        end = part.index + part.size
        for rank, kind in self.buffers(op, part):
            if rank >= len(self.plan.gpus):
                continue  # said already
            if end > self.plan.gpus[rank].chunks(kind):
                chunks = self.plan.gpus[rank].chunks(kind)
                yield place, f"chunk {end - 1} of {kind.name} of rank {rank}, which has {chunks}"
        if not self.buffers(op, part):
            yield place, f"{part} names no buffer"

    def buffers(self, op: Operation, part: Part) -> tuple[tuple[int, BufferType], ...]:
        try:
            return buffers_of(self.gpu, self.block, op, part)
        except LookupError:
            return ()


def copies_packets(op: Operation) -> bool:
    """Whether its sources are packets, as a port copies bytes as they are."""
    return op.name == "ppkt" and op.channel_type is ChannelType.port


def channel_ids(block: ThreadBlock, kind: ChannelType) -> tuple[int, ...]:
    """The rank's channels of a type that a thread block uses, in the thread block's order."""
    found: list[ChannelRefs] = [refs for refs in block.channels if refs.channel_type is kind]
    return found[0].channel_ids if found else ()


def _remote_ids(block: ThreadBlock, kind: ChannelType | None) -> tuple[int, ...]:
    found: list[RemoteBufferRefs] = [
        refs for refs in block.remote_buffer_refs if refs.access_channel_type is kind
    ]
    return found[0].remote_buffer_ids if found else ()


def buffers_of(
    gpu: Gpu, block: ThreadBlock, op: Operation, part: Part
) -> tuple[tuple[int, BufferType], ...]:
    """Of which buffers of which ranks a part of an operation is. Raises LookupError."""
    if isinstance(part, LocalPart):
        return ((gpu.id, part.type),)
    if isinstance(part, RemotePart):
        remote = gpu.remote_buffers[_remote_ids(block, op.channel_type)[part.buffer_id]]
        return ((remote.rank, remote.type),)
    number = channel_ids(block, ChannelType.switch)[part.switch_channel_id]
    kind, ranks = gpu.switches()[number]
    return tuple((rank, kind) for rank in ranks)
