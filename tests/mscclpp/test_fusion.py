"""Which neighbouring operations become one, and which do not."""

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
    PortChannel,
    Rank,
    SwitchChannel,
    SyncType,
    ThreadBlockGroup,
)
from mscclpp.language.plan import Operation

Names = Callable[..., str]


class World:
    """Rank 0 of four ranks, with scratch and a channel of each type to each of the others."""

    def __init__(self) -> None:
        self.rank = Rank(0)
        self.data = self.rank.get_input_buffer()
        self.out = self.rank.get_output_buffer()
        self.scratch = [Buffer(rank, 8) for rank in range(4)]
        self.memory = {peer: MemoryChannel(peer, 0) for peer in (1, 2, 3)}
        self.back = {peer: MemoryChannel(0, peer) for peer in (1, 2, 3)}
        self.port = {peer: PortChannel(peer, 0) for peer in (1, 2, 3)}
        self.port_back = {peer: PortChannel(0, peer) for peer in (1, 2, 3)}
        self.theirs = {peer: Rank(peer).get_input_buffer() for peer in (1, 2, 3)}


def fused(body: Callable[[World], None], **settings: bool) -> CollectiveProgram:
    with CollectiveProgram("fusion", AllReduce(4, 1, True), 4, **settings) as program:
        body(World())
    return program


def puts(w: World) -> None:
    for peer in (1, 2, 3):
        w.memory[peer].put(w.theirs[peer][0:1], w.data[0:1], tb=0)


def port_puts(w: World) -> None:
    for peer in (1, 2, 3):
        w.port[peer].put(w.theirs[peer][0:1], w.data[0:1], tb=0)


def packet_puts(w: World) -> None:
    for peer in (1, 2, 3):
        w.memory[peer].put_packets(w.scratch[peer][0:1], w.data[0:1], tb=0)


def gets(w: World) -> None:
    for peer in (1, 2, 3):
        w.memory[peer].get(w.scratch[0][peer : peer + 1], w.theirs[peer][0:1], tb=0)


def flushes(w: World) -> None:
    for peer in (1, 2, 3):
        w.port[peer].flush(tb=0, data_sync=SyncType.none)


def reductions(w: World) -> None:
    for i in range(3):
        w.rank.reduce(w.data[0:1], [w.scratch[0][i : i + 1]], tb=0)


def reductions_sent_on(w: World) -> None:
    reductions(w)
    puts(w)


def remote_reductions(w: World) -> None:
    for peer in (1, 2, 3):
        w.memory[peer].reduce(w.data[0:1], [w.theirs[peer][0:1]], tb=0)


def remote_reductions_sent_on(w: World) -> None:
    remote_reductions(w)
    puts(w)


def packet_reductions(w: World) -> None:
    for i in range(1, 4):
        w.rank.reduce(w.data[0:1], [w.scratch[0][i : i + 1]], tb=0, packet=True)


def packet_reductions_copied(w: World) -> None:
    packet_reductions(w)
    w.rank.copy_packets(w.scratch[0][7:8], w.data[0:1], tb=0)


def packet_reductions_sent_on(w: World) -> None:
    packet_reductions(w)
    packet_puts(w)


def packet_reductions_copied_and_sent_on(w: World) -> None:
    packet_reductions_copied(w)
    packet_puts(w)


def meetings(w: World) -> None:
    w.rank.barrier([0])
    w.rank.barrier([0])


def in_a_loop(w: World) -> None:
    with LoopIterationContext(unit=1024, num_chunks=1):
        puts(w)


@pytest.mark.parametrize(
    ("body", "name", "sources", "destinations", "channels"),
    [
        (puts, "put", 3, 3, 0),
        (port_puts, "put", 3, 3, 3),
        (packet_puts, "ppkt", 3, 3, 0),
        (gets, "get", 3, 3, 0),
        (flushes, "flush", 0, 0, 3),
        (reductions, "re", 4, 1, 0),
        (reductions_sent_on, "res", 4, 4, 0),
        (remote_reductions, "rre", 4, 1, 0),
        (remote_reductions_sent_on, "rres", 4, 4, 0),
        (packet_reductions, "repkt", 4, 1, 0),
        (packet_reductions_copied, "recpkt", 4, 2, 0),
        (packet_reductions_sent_on, "respkt", 4, 4, 0),
        (packet_reductions_copied_and_sent_on, "recspkt", 4, 5, 0),
        (meetings, "nop", 0, 0, 0),
    ],
)
def test_neighbours_become_one(
    ops: Callable[..., tuple[Operation, ...]],
    body: Callable[[World], None],
    name: str,
    sources: int,
    destinations: int,
    channels: int,
) -> None:
    (op,) = ops(fused(body).plan())
    assert (op.name, len(op.src_buff), len(op.dst_buff)) == (name, sources, destinations)
    assert op.channel_ids == tuple(range(channels))
    separate = ops(fused(body, instr_fusion=False).plan())
    assert len(separate) > 1 or name == "nop"
    lines = {line for one in separate for line in one.locations}
    assert set(op.locations) == lines, "it says from which lines it comes"


def test_bodies_of_loops_are_fused_too(ops: Callable[..., tuple[Operation, ...]]) -> None:
    (pipeline,) = ops(fused(in_a_loop).plan())
    assert [op.name for op in pipeline.ops] == ["put"]


@pytest.mark.parametrize("sync", list(SyncType))
def test_signals_and_waits_of_distinct_channels_become_one(names: Names, sync: SyncType) -> None:
    def body(w: World) -> None:
        for peer in (1, 2, 3):
            w.memory[peer].signal(tb=0, data_sync=sync)
        for peer in (1, 2, 3):
            w.back[peer].wait(tb=0, data_sync=sync)
            w.back[peer].signal(tb=0, data_sync=sync)
        for peer in (1, 2, 3):
            w.memory[peer].wait(tb=0, data_sync=sync)

    # A signal with a meeting after it: the next signal also tells of what was before that meeting.
    expected = {
        SyncType.none: "signal wait",
        SyncType.before: "nop signal nop wait",
        SyncType.after: "signal nop signal nop signal nop wait nop",
        SyncType.both: "nop signal nop wait nop",
    }
    assert names(fused(body).plan()) == expected[sync]


def test_what_is_ordered_stays_apart(names: Names) -> None:
    def twice_the_channel(w: World) -> None:
        for _ in range(2):
            w.memory[1].signal(tb=0, data_sync=SyncType.none)
        for _ in range(2):
            w.back[1].wait(tb=0, data_sync=SyncType.none)

    def twice_the_port(w: World) -> None:
        for i in range(2):
            w.port[1].put_with_signal(w.theirs[1][i : i + 1], w.data[i : i + 1], tb=0)
        for _ in range(2):
            w.port_back[1].wait(tb=0)

    def overwritten(w: World) -> None:
        w.memory[1].get(w.scratch[0][0:1], w.theirs[1][0:1], tb=0)
        w.memory[2].get(w.scratch[0][0:1], w.theirs[2][0:1], tb=0)

    def another_result(w: World) -> None:
        w.rank.reduce(w.data[0:1], [w.scratch[0][0:1]], tb=0)
        w.rank.reduce(w.data[1:2], [w.scratch[0][0:1]], tb=0)

    def source_is_the_result(w: World) -> None:
        w.rank.reduce(w.data[0:1], [w.scratch[0][0:1]], tb=0)
        w.rank.reduce(w.data[0:1], [w.data[0:1]], tb=0)

    def through_a_port(w: World) -> None:
        w.rank.reduce(w.data[0:1], [w.scratch[0][0:1]], tb=0)
        w.port[1].put(w.theirs[1][0:1], w.data[0:1], tb=0)

    def other_packets(w: World) -> None:
        w.rank.reduce(w.data[0:1], [w.scratch[0][0:1]], tb=0)
        w.memory[1].put_packets(w.scratch[1][0:1], w.data[0:1], tb=0)

    def relaxed_and_not(w: World) -> None:
        w.memory[1].signal(tb=0, data_sync=SyncType.none, relaxed=True)
        w.memory[2].signal(tb=0, data_sync=SyncType.none)
        w.back[1].wait(tb=0)
        w.back[2].wait(tb=0)

    for body, expected in [
        (twice_the_channel, "signal signal"),
        (twice_the_port, "pws pws"),
        (overwritten, "get nop get"),
        (another_result, "re re"),
        (source_is_the_result, "re nop re"),
        (through_a_port, "re nop put"),
        (other_packets, "re nop ppkt"),
        (relaxed_and_not, "rlxsignal signal"),
    ]:
        assert names(fused(body).plan()) == expected, body.__name__


def test_a_group_and_a_block_stay_apart(names: Names) -> None:
    def body(w: World) -> None:
        w.memory[1].put(w.theirs[1][0:1], w.data[0:1], tb_group=ThreadBlockGroup([0, 1]))
        w.memory[2].put(w.theirs[2][0:1], w.data[0:1], tb=0)

    assert names(fused(body).plan()) == "put put"


def test_a_switch_reduction_keeps_a_result_that_is_not_stored_anyway(names: Names) -> None:
    def body(w: World) -> None:
        switch = SwitchChannel([0, 1, 2, 3], BufferType.input).at_rank(0)
        switch.reduce(buffer_offset=0, size=1, dst_chunk=w.scratch[0][0:1], tb=0)
        switch.broadcast(src_chunk=w.scratch[0][0:1], buffer_offset=0, size=1, tb=0)
        switch.reduce(buffer_offset=1, size=1, dst_chunk=w.data[1:2], tb=1)
        switch.broadcast(src_chunk=w.data[1:2], buffer_offset=1, size=1, tb=1)

    plan = fused(body).plan()
    assert names(plan, 0, 0) == "glre nop gstore"
    assert names(plan, 0, 1) == "glres"
