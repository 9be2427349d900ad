"""Where the threads of a block meet."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mscclpp.language import (
    AllReduce,
    Buffer,
    BufferType,
    CollectiveProgram,
    LoopIterationContext,
    MemoryChannel,
    Rank,
    Semaphore,
    SwitchChannel,
    SyncType,
)

Names = Callable[..., str]
Body = Callable[[Rank, MemoryChannel], None]


def written(body: Body, **settings: bool) -> CollectiveProgram:
    with CollectiveProgram("syncs", AllReduce(2, 4, True), 2, **settings) as program:
        scratch = [Buffer(0, 8), Buffer(1, 8)]
        assert scratch[1].offset == 0
        body(Rank(0), MemoryChannel(1, 0))
    return program


def part(rank: Rank, a: int, b: int) -> tuple[object, object, object]:
    from mscclpp.language import BaseBuffer

    scratch = BaseBuffer(rank.rank, BufferType.scratch, 0, 8)
    return rank.get_input_buffer()[a:b], rank.get_output_buffer()[a:b], scratch[a:b]


def read_after_write(rank: Rank, _: MemoryChannel) -> None:
    source, out, scratch = part(rank, 0, 2)
    rank.copy(scratch, source, tb=0)
    rank.copy(out, scratch, tb=0)


def write_after_read(rank: Rank, _: MemoryChannel) -> None:
    source, out, scratch = part(rank, 0, 2)
    rank.copy(out, scratch, tb=0)
    rank.copy(scratch, source, tb=0)


def write_after_write(rank: Rank, _: MemoryChannel) -> None:
    source, out, scratch = part(rank, 0, 2)
    rank.copy(scratch, source, tb=0)
    rank.copy(scratch, out, tb=0)


def overlapping(rank: Rank, _: MemoryChannel) -> None:
    rank.copy(part(rank, 0, 2)[2], part(rank, 0, 2)[0], tb=0)
    rank.copy(part(rank, 1, 3)[1], part(rank, 1, 3)[2], tb=0)


def side_by_side(rank: Rank, _: MemoryChannel) -> None:
    rank.copy(part(rank, 0, 2)[2], part(rank, 0, 2)[0], tb=0)
    rank.copy(part(rank, 2, 4)[1], part(rank, 2, 4)[2], tb=0)


def two_blocks(rank: Rank, _: MemoryChannel) -> None:
    source, out, scratch = part(rank, 0, 2)
    rank.copy(scratch, source, tb=1)
    rank.copy(out, scratch, tb=0)


def packets_arrive(rank: Rank, _: MemoryChannel) -> None:
    source, out, scratch = part(rank, 0, 2)
    rank.copy_packets(scratch, source, tb=0)
    rank.unpack_packets(out, scratch, tb=0)


def packets_arrive_in_a_reduction(rank: Rank, _: MemoryChannel) -> None:
    source, out, scratch = part(rank, 0, 2)
    rank.copy_packets(scratch, source, tb=0)
    rank.reduce(out, [scratch], tb=0, packet=True)


def data_of_a_packet_reduction(rank: Rank, _: MemoryChannel) -> None:
    source, out, scratch = part(rank, 0, 2)
    rank.copy(out, source, tb=0)
    rank.reduce(out, [scratch], tb=0, packet=True)


def packets_overwritten(rank: Rank, _: MemoryChannel) -> None:
    source, out, scratch = part(rank, 0, 2)
    rank.unpack_packets(out, scratch, tb=0)
    rank.copy_packets(scratch, source, tb=0)


def packets_read_as_data(rank: Rank, _: MemoryChannel) -> None:
    source, out, scratch = part(rank, 0, 2)
    rank.copy_packets(scratch, source, tb=0)
    rank.copy(out, scratch, tb=0)


def remote_write_after_read(rank: Rank, channel: MemoryChannel) -> None:
    theirs = Rank(1).get_input_buffer()[0:2]
    _, out, scratch = part(rank, 0, 2)
    channel.get(out, theirs, tb=0)
    channel.put(theirs, scratch, tb=0)


def barrier_is_a_meeting(rank: Rank, _: MemoryChannel) -> None:
    source, out, scratch = part(rank, 0, 2)
    rank.copy(scratch, source, tb=0)
    rank.barrier([0, 1])
    rank.copy(out, scratch, tb=0)


def switch_reads_what_was_written(rank: Rank, _: MemoryChannel) -> None:
    source, out, scratch = part(rank, 0, 2)
    rank.copy(scratch, source, tb=0)
    view = SwitchChannel([0, 1], BufferType.scratch).at_rank(0)
    view.reduce(buffer_offset=1, size=2, dst_chunk=out, tb=0)


def loop_after_a_write(rank: Rank, _: MemoryChannel) -> None:
    source, out, scratch = part(rank, 0, 2)
    rank.copy(scratch, source, tb=0)
    with LoopIterationContext(unit=1024, num_chunks=2):
        rank.copy(out, scratch, tb=0)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (read_after_write, "copy nop copy"),
        (write_after_read, "copy nop copy"),
        (write_after_write, "copy nop copy"),
        (overlapping, "copy nop copy"),
        (side_by_side, "copy copy"),
        (two_blocks, "copy"),
        (packets_arrive, "cpkt upkt"),
        (packets_arrive_in_a_reduction, "cpkt repkt"),
        (data_of_a_packet_reduction, "copy nop repkt"),
        (packets_overwritten, "upkt nop cpkt"),
        (packets_read_as_data, "cpkt nop copy"),
        (remote_write_after_read, "get nop put"),
        (barrier_is_a_meeting, "copy barrier copy"),
        (switch_reads_what_was_written, "copy nop glre"),
        (loop_after_a_write, "copy nop pipeline"),
    ],
)
def test_threads_meet_where_data_needs_it(names: Names, body: Body, expected: str) -> None:
    assert names(written(body).plan()) == expected
    assert names(written(body, auto_sync=False).plan()) == expected.replace(" nop", "")


def test_threads_meet_where_it_is_asked_for(names: Names) -> None:
    expected = {
        SyncType.none: "sem_acquire sem_release",
        SyncType.before: "nop sem_acquire nop sem_release",
        SyncType.after: "sem_acquire nop sem_release nop",
        SyncType.both: "nop sem_acquire nop sem_release nop",
    }
    for sync, names_expected in expected.items():

        def body(rank: Rank, _: MemoryChannel, sync: SyncType = sync) -> None:
            semaphore = Semaphore(0, 1)
            semaphore.acquire(tb=0, data_sync=sync)
            semaphore.release(tb=0, data_sync=sync)

        assert names(written(body).plan()) == names_expected
        assert names(written(body, auto_sync=False).plan()) == names_expected
