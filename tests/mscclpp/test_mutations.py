"""Right programs with one thing changed are wrong, and the proof says so."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from mscclpp.language import CollectiveProgram, Plan, ProgramError
from mscclpp.language.accesses import accesses
from mscclpp.language.instructions import INSTRUCTIONS
from mscclpp.language.plan import Gpu, Operation, Part, ThreadBlock
from mscclpp.language.references import channel_ids
from mscclpp.proof import prove_plan

Write = Callable[..., CollectiveProgram]
Ops = tuple[Operation, ...]

# In what the engine executes, the threads of a block meet at every operation, and what was put has
# left when the operation ends. So these change nothing; MSCCL++'s own executor needs them.
EQUIVALENT = ("nop dropped", "flush dropped", "flush of a channel dropped")


def changed_parts(op: Operation) -> Iterator[tuple[str, Operation]]:
    """One chunk replaced by its neighbour, and a reduction or its result to one place less."""
    for side in ("src_buff", "dst_buff"):
        parts: tuple[Part, ...] = getattr(op, side)
        for number, part in enumerate(parts):
            for index in (part.index - 1, part.index + 1):
                moved = (*parts[:number], replace(part, index=index), *parts[number + 1 :])
                if index >= 0:
                    yield f"{op.name} {side} {number} moved", replace(op, **{side: moved})
            if len(parts) > 1 and (side == "dst_buff" or number > 0):
                if INSTRUCTIONS[op.name].pairs:
                    continue
                fewer = (*parts[:number], *parts[number + 1 :])
                yield f"{op.name} {side} {number} dropped", replace(op, **{side: fewer})


def changed_operations(gpu: Gpu, block: ThreadBlock, ops: Ops) -> Iterator[tuple[str, Ops]]:
    for at, op in enumerate(ops):
        before, after = ops[:at], ops[at + 1 :]
        yield f"{op.name} dropped", (*before, *after)
        for what, other in changed_parts(op):
            yield what, (*before, other, *after)
        for number in range(len(op.channel_ids) if not op.dst_buff else 0):
            ids = (*op.channel_ids[:number], *op.channel_ids[number + 1 :])
            if ids:
                what = f"{op.name} of a channel dropped"
                yield what, (*before, replace(op, channel_ids=ids), *after)
        for what, inner in changed_operations(gpu, block, op.ops):
            yield f"in a loop: {what}", (*before, replace(op, ops=inner), *after)
        between = [*itertools.takewhile(lambda later: later.name == "nop", after), op]
        if len(between) <= len(after) and depends(gpu, block, op, after[len(between) - 1]):
            later = after[len(between) - 1]
            rest = after[len(between) :]
            yield f"{op.name} and {later.name} swapped", (*before, later, *between, *rest)


def depends(gpu: Gpu, block: ThreadBlock, first: Operation, then: Operation) -> bool:
    """Whether data and what announces it, or what is waited for and the data, are in order."""

    def told(op: Operation) -> set[int]:
        ends = gpu.connections(op.channel_type) if op.channel_type else ()
        return {ends[channel_ids(block, op.channel_type)[n]] for n in op.channel_ids}

    def reached(op: Operation) -> set[int]:
        return {access.rank for access in accesses(gpu, block, op)} - {gpu.id}

    if (
        then.name == "barrier"
    ):  # which tells other thread blocks, if this one does not signal itself
        signals = any(INSTRUCTIONS[op.name].signals for op in block.ops)
        return bool(reached(first)) and not signals
    if then.name == "sem_release" or first.name == "sem_acquire":
        return bool(first.dst_buff or then.dst_buff)
    if INSTRUCTIONS[then.name].signals and not then.dst_buff:
        return bool(reached(first) & told(then))
    return INSTRUCTIONS[first.name].waits and bool(told(first) & reached(then))


def mutants(plan: Plan) -> Iterator[tuple[str, Plan]]:
    for gpu in plan.gpus:
        for at, block in enumerate(gpu.threadblocks):
            for what, ops in changed_operations(gpu, block, block.ops):
                blocks = list(gpu.threadblocks)
                blocks[at] = replace(block, ops=ops)
                gpus = list(plan.gpus)
                gpus[gpu.id] = replace(gpu, threadblocks=tuple(blocks))
                yield f"rank {gpu.id}, block {at}: {what}", replace(plan, gpus=tuple(gpus))
        for number, semaphore in enumerate(gpu.semaphores):
            semaphores = list(gpu.semaphores)
            semaphores[number] = replace(semaphore, init_value=semaphore.init_value + 1)
            gpus = list(plan.gpus)
            gpus[gpu.id] = replace(gpu, semaphores=tuple(semaphores))
            yield f"rank {gpu.id}: semaphore with one more", replace(plan, gpus=tuple(gpus))


def is_found(plan: Plan) -> bool:
    try:
        return not prove_plan(plan)
    except ProgramError:
        return True


@pytest.mark.parametrize("instr_fusion", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "all_gather_port",
        "all_gather_port at once",
        "all_gather_ring",
        "all_gather_ring by port",
        "all_gather_semaphores",
        "all_gather_switch",
        "all_reduce_exchange",
        "all_reduce_locked",
        "all_reduce_one_shot",
        "all_reduce_packets",
        "all_reduce_packets_relayed",
        "all_reduce_switch",
        "all_reduce_two_shot",
        "all_to_all_group",
        "reduce_scatter_pull",
        "reduce_scatter_pull in place",
        "reduce_scatter_ring",
    ],
)
def test_every_change_is_found(write_program: Write, name: str, instr_fusion: bool) -> None:
    file, _, how = name.partition(" ")
    more = {
        "": {},
        "at once": {"at_once": True},
        "by port": {"port": True},
        "in place": {"in_place": True},
    }[how]
    plan = write_program(file, instr_fusion=instr_fusion, **more).plan()
    missed, found = [], 0
    for what, mutant in mutants(plan):
        if what.endswith(EQUIVALENT):
            continue
        if is_found(mutant):
            found += 1
        else:
            missed.append(what)
    assert missed == []
    assert found >= 15
