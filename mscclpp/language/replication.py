"""Instances: so many copies of every thread block, each with its share of every chunk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from mscclpp.language.accesses import accesses
from mscclpp.language.plan import (
    Channels,
    Gpu,
    Operation,
    Part,
    Plan,
    RankGroup,
    SwitchChannels,
    ThreadBlock,
)
from mscclpp.language.source import Location, ProgramError
from mscclpp.language.types import BufferType


def replicated(plan: Plan, instances: int) -> Plan:
    """The plan with `instances` interleaved copies.

    What had number i (a thread block, a channel, a semaphore, a barrier) becomes the numbers
    i * instances + instance. Chunks [index, index + size) become size * instances finer ones from
    index * instances on, of which each instance takes `size`, one instance after the other.

    Raises:
        ProgramError: chunks of different extents overlap, and are written, so that one instance
            would depend on what another one does.
    """
    if instances == 1:
        return plan
    _check_extents(plan, instances)
    return replace(plan, gpus=tuple(_rank(gpu, instances) for gpu in plan.gpus))


def _rank(gpu: Gpu, n: int) -> Gpu:
    return replace(
        gpu,
        input_chunks=gpu.input_chunks * n,
        output_chunks=gpu.output_chunks * n,
        scratch_chunks=gpu.scratch_chunks * n,
        threadblocks=tuple(
            _block(block, n, instance) for block in gpu.threadblocks for instance in range(n)
        ),
        channels=tuple(_channels(entry, n) for entry in gpu.channels),
        semaphores=tuple(one for one in gpu.semaphores for _ in range(n)),
    )


def _channels(entry: Channels | SwitchChannels, n: int) -> Channels | SwitchChannels:
    if isinstance(entry, Channels):
        return replace(
            entry, connected_to=tuple(rank for rank in entry.connected_to for _ in range(n))
        )
    groups: tuple[RankGroup, ...] = tuple(group for group in entry.rank_groups for _ in range(n))
    return replace(entry, rank_groups=groups)


def _block(block: ThreadBlock, n: int, instance: int) -> ThreadBlock:
    return replace(
        block,
        id=block.id * n + instance,
        ops=tuple(_operation(op, n, instance) for op in block.ops),
        channels=tuple(
            replace(refs, channel_ids=tuple(i * n + instance for i in refs.channel_ids))
            for refs in block.channels
        ),
    )


def _operation(op: Operation, n: int, instance: int) -> Operation:
    def part(one: Part) -> Part:
        return replace(one, index=one.index * n + instance * one.size)

    return replace(
        op,
        src_buff=tuple(map(part, op.src_buff)),
        dst_buff=tuple(map(part, op.dst_buff)),
        barrier_id=None if op.barrier_id is None else op.barrier_id * n + instance,
        semaphore_ids=tuple(i * n + instance for i in op.semaphore_ids),
        ops=tuple(_operation(inner, n, instance) for inner in op.ops),
    )


_Extents = dict[tuple[int, int], tuple[bool, tuple[Location, ...]]]  # written?, from which lines


def _check_extents(plan: Plan, n: int) -> None:
    """Instance i of one operation must touch only what instance i of the others touches."""
    extents: dict[tuple[int, BufferType], _Extents] = defaultdict(dict)
    for gpu, block, op in _operations(plan):
        for a in accesses(gpu, block, op):
            known = extents[a.rank, a.buffer].setdefault(a.extent, (False, op.locations))
            if a.writes and not known[0]:
                extents[a.rank, a.buffer][a.extent] = (True, op.locations)
    for (rank, buffer), found in extents.items():
        ordered = sorted(found.items())
        for number, ((index, size), (written, lines)) in enumerate(ordered):
            for (other, more), (too, others) in ordered[number + 1 :]:
                if other >= index + size:
                    break
                if written or too:
                    raise ProgramError(
                        f"{n} instances divide {buffer.name}[{index}:{index + size}] and "
                        f"[{other}:{other + more}] of rank {rank} differently, so one instance "
                        "would wait for nobody and touch what another one writes; use chunks of "
                        "one size there, or instances=1",
                        *lines[:1],
                        *others[:1],
                    )


def _operations(plan: Plan) -> Iterator[tuple[Gpu, ThreadBlock, Operation]]:
    for gpu in plan.gpus:
        for block in gpu.threadblocks:
            for op in block.ops:
                for one in op.ops or (op,):
                    yield gpu, block, one
