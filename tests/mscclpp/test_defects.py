"""What goes wrong in the front end of MSCCL++ 0.9, one test for each, and goes right here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mscclpp.language import (
    AllReduce,
    Buffer,
    BufferType,
    CollectiveProgram,
    MemoryChannel,
    PortChannel,
    ProgramError,
    Rank,
    ReduceOperationType,
    ReplicationPolicy,
    Semaphore,
    SwitchChannel,
    exceeded,
)
from mscclpp.language.accesses import accesses
from mscclpp.language.limits import fits
from mscclpp.language.plan import Operation

Write = Callable[..., CollectiveProgram]
Ops = Callable[..., tuple[Operation, ...]]


def test_compiling_twice_replicates_once(write_program: Write) -> None:
    program = write_program("all_reduce_two_shot", ranks=4, instances=2)
    program.post_process_operations()
    program.post_process_operations()
    first = program.to_json()
    gpu = program.plan().gpus[0]
    assert (len(gpu.threadblocks), gpu.input_chunks) == (2, 8)
    assert program.to_json() == first


def test_policy_none_compiles(write_program: Write) -> None:
    settings = {"instances": 2, "replication_policy": ReplicationPolicy.none}
    plan = write_program("all_reduce_two_shot", ranks=4, **settings).plan()
    assert (len(plan.gpus[0].threadblocks), plan.gpus[0].input_chunks) == (1, 4)


def test_barriers_are_numbered_from_0_in_every_program(write_program: Write, ops: Ops) -> None:
    for _ in range(20):
        plan = write_program("all_to_all_group").plan()
        assert {op.barrier_id for op in ops(plan) if op.name == "barrier"} == {0}
        assert exceeded(plan) == []


def test_a_barrier_of_the_same_thread_blocks_is_the_same_barrier(ops: Ops) -> None:
    with CollectiveProgram("barriers", AllReduce(2, 1, True), 2) as program:
        for blocks in ([0, 1], [1, 0], [0, 2], [0, 1]):
            Rank(0).barrier(blocks)
        Rank(1).barrier([0, 3])
    plan = program.plan()
    assert [op.barrier_id for op in ops(plan, 0)] == [0, 0, 1, 0]
    assert [op.barrier_id for op in ops(plan, 1)] == [0]


def test_no_operation_of_16_ranks_is_more_than_the_executor_can_hold(
    write_program: Write, ops: Ops
) -> None:
    plan = write_program("all_reduce_two_shot", ranks=16).plan()
    assert exceeded(plan) == []
    for rank in range(16):
        assert all(fits(op) for op in ops(plan, rank))
        for name in ("rlxsignal", "rlxwait", "signal", "wait"):
            channels = [op.channel_ids for op in ops(plan, rank) if op.name == name]
            assert [len(ids) for ids in channels] == [8, 7]
            assert sorted(sum(channels, ())) == list(range(15))
    read = [part for op in ops(plan) for part in op.src_buff if op.name in ("rre", "rres")]
    assert len(set(read)) == 16, "its own chunk and 15 of others, however divided"


def test_one_call_that_reduces_very_much_is_done_in_steps(ops: Ops) -> None:
    with CollectiveProgram("many", AllReduce(1, 32, True), 1) as program:
        data, out = Rank(0).get_input_buffer(), Rank(0).get_output_buffer()
        others = [data[i : i + 1] for i in range(1, 25)]
        Rank(0).reduce(data[0:1], others, tb=0, dst_chunk=out[0:1])
    steps = ops(program.plan())
    assert [op.name for op in steps] == ["re", "nop", "re", "nop", "re"]
    assert [len(op.src_buff) for op in steps[::2]] == [10, 10, 7]
    assert [op.src_buff[0] for op in steps[2::2]] == [steps[0].dst_buff[0]] * 2
    assert exceeded(program.plan()) == []


def test_a_step_that_would_overwrite_a_source_is_refused() -> None:
    with CollectiveProgram("many", AllReduce(1, 32, True), 1) as program:
        data = Rank(0).get_input_buffer()
        others = [data[i : i + 1] for i in range(1, 25)]
        Rank(0).reduce(data[0:1], others, tb=0, dst_chunk=data[24:25])
    with pytest.raises(ProgramError, match="name another dst_chunk"):
        program.plan()


def test_more_than_16_channels_are_written_and_reported(ops: Ops) -> None:
    with CollectiveProgram("many", AllReduce(20, 1, True), 20) as program:
        for rank in range(1, 20):
            MemoryChannel(rank, 0).signal(tb=0)
            MemoryChannel(0, rank).wait(tb=0)
    plan = program.plan()
    assert [len(op.channel_ids) for op in ops(plan) if op.name == "signal"] == [8, 8, 3]
    assert exceeded(plan) == ["rank 0, thread block 0: 19 memory channels, 16 at most"]


def test_what_that_executor_does_otherwise_is_reported() -> None:
    with CollectiveProgram("get", AllReduce(2, 2, True), 2, buffer_alignment=4) as program:
        data = [Rank(rank).get_input_buffer() for rank in range(2)]
        MemoryChannel(1, 0).get(data[0][0:1], data[1][1:2], tb=0)
        MemoryChannel(1, 0).get(data[0][2:3], data[1][2:3], tb=0)
        Rank(0).reduce(data[0][0:1], [data[0][2:3]], tb=0)
    mixed, rest = exceeded(program.plan())
    assert "rank 0, thread block 0, 'get': the places of source and destination" in mixed
    assert rest.startswith("buffer_alignment 4: of chunks that are no multiple of 16 bytes")


def test_more_than_16_semaphores_of_an_operation_are_reported() -> None:
    with CollectiveProgram("many", AllReduce(2, 1, True), 2) as program:
        semaphore = Semaphore(0, 0)
        semaphore.release(tb=0)
        semaphore.acquire(tb=1)
    plan = program.plan()
    gpu = plan.gpus[0]
    op = next(op for op in gpu.threadblocks[0].ops if op.name == "sem_release")
    many = replace(op, semaphore_ids=tuple(range(17)))
    block = replace(gpu.threadblocks[0], ops=(many,))
    changed = replace(plan, gpus=(replace(gpu, threadblocks=(block,)), *plan.gpus[1:]))
    (line,) = exceeded(changed)
    assert line.endswith("'sem_release': 17 semaphores, 16 at most")


def test_a_switch_store_goes_where_it_was_sent(ops: Ops) -> None:
    def stored(kind: BufferType, offset: int) -> list[tuple[str, int]]:
        with CollectiveProgram("switch", AllReduce(2, 2, False), 2) as program:
            out = Rank(0).get_output_buffer()
            source = SwitchChannel([0, 1], BufferType.input).at_rank(0)
            target = SwitchChannel([0, 1], kind).at_rank(0)
            source.reduce(buffer_offset=3, size=1, dst_chunk=out[1:2], tb=0)
            target.broadcast(src_chunk=out[1:2], buffer_offset=offset, size=1, tb=0)
        return [(op.name, op.dst_buff[0].index) for op in ops(program.plan()) if op.dst_buff]

    assert stored(BufferType.output, 1) == [("glres", 1)], "not 3, which is where it was read"
    assert stored(BufferType.output, 2) == [("glre", 1), ("gstore", 2)]


def test_switch_channels_are_numbered_as_they_are_listed() -> None:
    with CollectiveProgram("switch", AllReduce(2, 1, False), 2) as program:
        kinds = [BufferType.output, BufferType.input, BufferType.output]
        out = Rank(0).get_output_buffer()
        for ranks, kind in zip(([0, 1], [1, 0], [0]), kinds, strict=True):
            SwitchChannel(ranks, kind).at_rank(0).reduce(0, 1, out[0:1], tb=0)
    gpu = program.plan().gpus[0]
    used = [gpu.switches()[number] for number in gpu.threadblocks[0].channels[0].channel_ids]
    assert used == [(kinds[0], (0, 1)), (kinds[1], (1, 0)), (kinds[2], (0,))]


def test_data_of_a_packet_reduction_is_data_and_packets_are_packets(ops: Ops) -> None:
    with CollectiveProgram("packets", AllReduce(2, 1, True), 2) as program:
        scratch, data = Buffer(0, 2), Rank(0).get_input_buffer()
        Rank(0).copy(data[0:1], data[1:2], tb=0)
        Rank(0).reduce(data[0:1], [scratch[0:1]], tb=0, packet=True)
    plan = program.plan()
    assert [op.name for op in ops(plan)] == ["copy", "nop", "repkt"]
    block = plan.gpus[0].threadblocks[0]
    forms = [a.packets for a in accesses(plan.gpus[0], block, block.ops[2])]
    assert forms == [False, True, False]


def test_packets_that_a_reduction_copies_are_replicated_too(ops: Ops) -> None:
    with CollectiveProgram("packets", AllReduce(2, 1, True), 2, instances=2) as program:
        scratch, data = Buffer(0, 2), Rank(0).get_input_buffer()
        Rank(0).reduce(data[1:2], [scratch[0:1]], tb=0, packet=True)
        Rank(0).copy_packets(scratch[1:2], data[1:2], tb=0)
    plan = program.plan()
    for instance in range(2):
        (op,) = ops(plan, 0, instance)
        assert op.name == "recpkt"
        assert [part.index for part in op.src_buff] == [2 + instance, instance]
        assert [part.index for part in op.dst_buff] == [2 + instance, 2 + instance]


def test_a_port_sends_packets_only_if_they_are_packets(ops: Ops) -> None:
    with CollectiveProgram("port", AllReduce(2, 1, True), 2) as program:
        scratch = [Buffer(0, 2), Buffer(1, 2)]
        data, port = Rank(0).get_input_buffer(), PortChannel(1, 0)
        with pytest.raises(ProgramError, match=r"is data, no packets: .* Rank.copy_packets"):
            port.put_packets(scratch[1][0:1], data[0:1], tb=0)
        Rank(0).copy_packets(scratch[0][0:1], data[0:1], tb=0)
        port.put_packets(scratch[1][0:1], scratch[0][0:1], tb=0)
        Rank(0).reduce(data[0:1], [data[1:2]], tb=1, reduce_op=ReduceOperationType.max)
    plan = program.plan()
    block = plan.gpus[0].threadblocks[0]
    assert [op.name for op in block.ops] == ["cpkt", "ppkt"]
    assert all(a.packets for a in accesses(plan.gpus[0], block, block.ops[1]))
    plain, line = exceeded(plan)
    assert plain.endswith("'ppkt': a port sends plain data there, without the flags of packets")
    assert line.endswith("rank 0, thread block 1, 're': max is executed as a sum")
    assert line.startswith(f"{__file__}:")


def test_signals_and_waits_are_paired_by_channel_not_by_rank() -> None:
    with CollectiveProgram("pairs", AllReduce(2, 1, True), 2) as program:
        there, back = ([MemoryChannel(*pair) for _ in range(2)] for pair in ((1, 0), (0, 1)))
        there[0].signal(tb=0)
        back[1].wait(tb=0)
    with pytest.raises(ProgramError, match="rank 0 signals rank 1 once over memory channel 0"):
        program.validate_signal_wait_pairing()
