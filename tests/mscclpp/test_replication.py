"""Instances: every copy does its share of the same, and touches nothing of the others'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mscclpp.language import (
    AllToAll,
    Buffer,
    BufferType,
    CollectiveProgram,
    MemoryChannel,
    Plan,
    PortChannel,
    ProgramError,
    Rank,
    ReplicationPolicy,
    Semaphore,
    SwitchChannel,
    SyncType,
    read,
    write,
)
from mscclpp.language.accesses import accesses
from mscclpp.language.references import channel_ids
from mscclpp.language.types import ChannelType

Write = Callable[..., CollectiveProgram]
RANKS = 3
CHUNKS = 4  # per part, of which a program uses [0:1], [1:2] and [2:4]
EXTENTS = [(0, 1), (1, 1), (2, 2)]

# No program is wrong for taking long on a busy machine.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

extents = st.sampled_from(EXTENTS)
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["copy", "put", "get", "reduce", "packets", "barrier", "semaphore", "switch"]
        ),
        st.integers(0, RANKS - 1),  # on which rank
        st.integers(1, RANKS - 1),  # to the how-manieth rank after it
        st.integers(0, 2),  # in which thread block
        extents,
    ),
    max_size=12,
)


def program(recipe: list[tuple[str, int, int, int, tuple[int, int]]], **options: object) -> Plan:
    collective = AllToAll(RANKS, CHUNKS, False)
    with CollectiveProgram("random", collective, RANKS, **options) as written:  # type: ignore[arg-type]
        ranks = [Rank(rank) for rank in range(RANKS)]
        scratch = [Buffer(rank, CHUNKS) for rank in range(RANKS)]
        packets = [Buffer(rank, CHUNKS) for rank in range(RANKS)]
        switches = [
            SwitchChannel(range(RANKS), kind) for kind in (BufferType.output, BufferType.input)
        ]
        semaphores = [Semaphore(rank, rank) for rank in range(RANKS)]
        pairs = [(a, b) for a in range(RANKS) for b in range(RANKS) if a != b]
        memory = {pair: MemoryChannel(*pair) for pair in pairs}
        port = {pair: PortChannel(*pair) for pair in pairs}
        for what, me, step, tb, (index, size) in recipe:
            peer = (me + step) % RANKS
            cut = slice(index, index + size)
            source, output = ranks[me].get_input_buffer()[cut], ranks[me].get_output_buffer()[cut]
            if what == "copy":
                ranks[me].copy(scratch[me][cut], source, tb=tb)
            elif what == "put":
                port[peer, me].put_with_signal(scratch[peer][cut], source, tb=tb)
                port[me, peer].wait(tb=tb, data_sync=SyncType.after)
            elif what == "get":
                memory[peer, me].signal(tb=tb)
                memory[me, peer].wait(tb=tb)
                memory[peer, me].get(output, scratch[peer][cut], tb=tb)
            elif what == "reduce":
                memory[peer, me].reduce(source, [scratch[peer][cut]], tb=tb, local_dst_chunk=output)
            elif what == "packets":
                memory[peer, me].put_packets(packets[peer][cut], source, tb=tb)
                ranks[peer].unpack_packets(
                    ranks[peer].get_output_buffer()[cut], packets[peer][cut], tb=tb
                )
            elif what == "barrier":
                ranks[me].barrier(list(range(tb + 1)))
            elif what == "semaphore":
                semaphores[me].acquire(tb=tb)
                semaphores[me].release(tb=tb)
            else:
                switches[step - 1].at_rank(me).reduce(index, size, scratch[me][cut], tb=tb)
    return written.plan()


def touched(plan: Plan) -> Counter[tuple[object, ...]]:
    """How often each single chunk is read, and written, in each form and by which instruction."""
    counts: Counter[tuple[object, ...]] = Counter()
    for gpu in plan.gpus:
        for block in gpu.threadblocks:
            for op in block.ops:
                for access in accesses(gpu, block, op):
                    for chunk in range(access.index, access.index + access.size):
                        what = (op.name, gpu.id, access.rank, access.buffer, access.writes)
                        counts[(*what, access.packets, chunk)] += 1
    return counts


@untimed
@given(steps, st.integers(1, 5))
def test_copies_together_touch_what_the_program_touches(
    recipe: list[tuple[str, int, int, int, tuple[int, int]]], instances: int
) -> None:
    once, many = program(recipe), program(recipe, instances=instances)
    expected: Counter[tuple[object, ...]] = Counter()
    for (*what, chunk), count in touched(once).items():
        assert isinstance(chunk, int)
        for finer in range(chunk * instances, (chunk + 1) * instances):
            expected[(*what, finer)] += count
    assert touched(many) == expected


@untimed
@given(steps, st.integers(2, 4))
def test_copies_share_nothing(
    recipe: list[tuple[str, int, int, int, tuple[int, int]]], instances: int
) -> None:
    plan = program(recipe, instances=instances)
    owners: dict[tuple[object, ...], int] = {}

    def owned(instance: int, *what: object) -> None:
        assert owners.setdefault(what, instance) == instance, what

    for gpu in plan.gpus:
        for block in gpu.threadblocks:
            instance = block.id % instances
            for kind in ChannelType:
                for number in channel_ids(block, kind):
                    owned(instance, "channel", gpu.id, kind, number)
            for op in block.ops:
                if op.barrier_id is not None:
                    owned(instance, "barrier", gpu.id, op.barrier_id)
                for semaphore in op.semaphore_ids:
                    owned(instance, "semaphore", gpu.id, semaphore)
                for access in accesses(gpu, block, op):
                    for chunk in range(access.index, access.index + access.size):
                        owned(instance, access.rank, access.buffer, chunk)


@untimed
@given(steps, st.integers(1, 4))
def test_what_is_replicated_is_read_back(
    recipe: list[tuple[str, int, int, int, tuple[int, int]]], instances: int
) -> None:
    plan = program(recipe, instances=instances)
    assert read(write(plan)) == plan
    assert write(read(write(plan))) == write(plan)


@untimed
@given(steps, st.integers(2, 5))
def test_ends_of_a_connection_are_those_of_one_instance(
    recipe: list[tuple[str, int, int, int, tuple[int, int]]], instances: int
) -> None:
    once, many = program(recipe), program(recipe, instances=instances)
    for gpu, copies in zip(once.gpus, many.gpus, strict=True):
        assert len(copies.threadblocks) == len(gpu.threadblocks) * instances
        for kind in (ChannelType.memory, ChannelType.port):
            ends = gpu.connections(kind)
            assert copies.connections(kind) == tuple(e for e in ends for _ in range(instances))
        assert len(copies.switches()) == len(gpu.switches()) * instances
        assert len(copies.semaphores) == len(gpu.semaphores) * instances
        for block in gpu.threadblocks:
            for instance in range(instances):
                copy = copies.threadblocks[block.id * instances + instance]
                assert [op.name for op in copy.ops] == [op.name for op in block.ops]
                for kind in ChannelType:
                    assert channel_ids(copy, kind) == tuple(
                        number * instances + instance for number in channel_ids(block, kind)
                    )


def test_chunks_are_divided_interleaved(write_program: Write) -> None:
    plan = write_program("all_reduce_two_shot", ranks=2, instances=3).plan()
    assert (plan.gpus[0].input_chunks, plan.gpus[0].output_chunks) == (6, 6)
    for block in plan.gpus[1].threadblocks:
        (rres,) = [op for op in block.ops if op.name == "rres"]
        assert {p.index for p in (*rres.src_buff, *rres.dst_buff)} == {3 + block.id}
    with CollectiveProgram("wide", AllToAll(1, 4, False), 1, instances=2) as wide:
        rank = Rank(0)
        rank.copy(rank.get_output_buffer()[1:4], rank.get_input_buffer()[1:4], tb=0)
    parts = [block.ops[0].src_buff[0] for block in wide.plan().gpus[0].threadblocks]
    assert [(p.index, p.size) for p in parts] == [(2, 3), (5, 3)]


def test_a_program_that_wrote_its_instances_out_is_taken_as_it_is(write_program: Write) -> None:
    settings = {"replication_policy": ReplicationPolicy.none}
    for name in ("all_reduce_two_shot", "all_gather_port", "all_reduce_switch"):
        as_it_is = write_program(name).to_json()
        assert write_program(name, instances=4, **settings).to_json() == as_it_is


def test_chunks_that_instances_would_divide_differently_are_refused() -> None:
    def halves(instances: int, reads_only: bool = False) -> CollectiveProgram:
        with CollectiveProgram("halves", AllToAll(1, 2, False), 1, instances=instances) as result:
            rank, scratch = Rank(0), Buffer(0, 2)
            source = rank.get_input_buffer() if reads_only else scratch
            rank.copy(scratch[0:2], rank.get_input_buffer()[0:2], tb=0)
            rank.copy(rank.get_output_buffer()[0:1], source[0:1], tb=0)
        return result

    halves(1).plan()
    halves(2, reads_only=True).plan()
    with pytest.raises(ProgramError, match=r"2 instances divide scratch\[0:1\] and \[0:2\]") as why:
        halves(2).plan()
    assert [line.text().split("(")[0] for line in why.value.locations] == ["rank.copy"] * 2
