"""Wrong programs are told so, with the user's own line."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from mscclpp.language import (
    JSON,
    AllReduce,
    Buffer,
    BufferType,
    Chunk,
    CollectiveProgram,
    Location,
    LoopIterationContext,
    MemoryChannel,
    Plan,
    PortChannel,
    ProgramError,
    Rank,
    Semaphore,
    SwitchChannel,
    TestCollective,
    ThreadBlockGroup,
)


class World:
    def __init__(self) -> None:
        self.rank = Rank(0)
        self.data, self.theirs = self.rank.get_input_buffer(), Rank(1).get_input_buffer()
        self.out = self.rank.get_output_buffer()
        self.scratch = [Buffer(0, 2), Buffer(1, 2)]
        self.memory, self.back = MemoryChannel(1, 0), MemoryChannel(0, 1)
        self.port = PortChannel(1, 0)
        self.switch = SwitchChannel([0, 1], BufferType.input)


def two_ways(w: World) -> None:
    w.rank.copy(w.out[0:1], w.data[0:1], tb=0, tb_group=ThreadBlockGroup([0, 1]))


def nested_loops(w: World) -> None:
    with LoopIterationContext(unit=1024, num_chunks=1), LoopIterationContext(1024, 1):
        pass


def wait_in_a_loop(w: World) -> None:
    w.memory.signal(tb=0)
    with LoopIterationContext(unit=1024, num_chunks=1):
        w.back.wait(tb=0)


def low(w: World) -> None:
    SwitchChannel([0, 1], BufferType.scratch).at_rank(0).reduce(1, 2, w.data[0:2], tb=0)


WRONG: list[tuple[Callable[[World], object], str]] = [
    (lambda w: Rank(2), "Rank: there is no rank 2: the program has 2"),
    (lambda w: Rank(True), "must be the number of a rank"),
    (lambda w: MemoryChannel(1, 1), "leads to another rank"),
    (lambda w: PortChannel(5, 0), "there is no rank 5"),
    (lambda w: Buffer(0, 0), "size must be a positive number of chunks"),
    (lambda w: w.rank.reduce(w.data[0], w.data[1], tb=0), "other_chunks must be a list, not Chunk"),
    (
        lambda w: w.memory.reduce(w.data[0], None, tb=0),
        "remote_src_chunks must be a list, not None",
    ),
    (lambda w: w.rank.barrier(5), "tb_list must be a list, not 5"),
    (lambda w: ThreadBlockGroup("01"), "tb_list must be a list, not '01'"),
    (lambda w: SwitchChannel(2, BufferType.input), "rank_list must be a list, not 2"),
    (lambda w: AllReduce(2, 1, "no"), "inplace must be True or False, not 'no'"),
    (lambda w: TestCollective(2, 1.5, 1), "input_size must be a number of chunks, not 1.5"),
    (lambda w: TestCollective(2, 1, -1), "output_size must be a number of chunks, not -1"),
    (lambda w: CollectiveProgram.from_spec("p"), "spec must be an AlgoSpec, not 'p'"),
    (lambda w: Buffer(0, 2**62), "at most 16777216 chunks of scratch"),
    (lambda w: Semaphore(0, -1), "must not be negative"),
    (lambda w: Semaphore(0, 2**62), "must not be above 16777216"),
    (lambda w: ThreadBlockGroup([0, 0]), "listed twice"),
    (lambda w: ThreadBlockGroup([]), "at least one"),
    (lambda w: SwitchChannel([0, 0], BufferType.input), "each once"),
    (lambda w: w.switch.at_rank(7), "rank 7 is not one of"),
    (lambda w: w.switch.at_rank([0]), r"rank \[0\] is not one of"),
    (lambda w: w.back.wait(tb=0, relaxed="no"), "relaxed must be True or False, not 'no'"),
    (lambda w: AllReduce(10**7, 1, True), "10000000 ranks: there are at most 1024"),
    (lambda w: w.data[1:5], r"rank 0, input buffer: \[1:5\] is not within its 4 chunks"),
    (lambda w: w.data[2:2], "or is empty"),
    (lambda w: w.data[0:4:2], "side by side"),
    (lambda w: w.rank.copy(w.out[0:1], w.data[0:1]), "tb= or tb_group="),
    (two_ways, "tb= or tb_group="),
    (lambda w: w.rank.copy(w.out[0:1], w.data[0:1], tb=-1), "number of a thread block, not -1"),
    (lambda w: w.rank.copy(w.out[0:1], w.data[0:1], tb=10**9), "at most 1024 thread blocks"),
    (lambda w: ThreadBlockGroup([0, 1024]), "no thread block 1024"),
    (lambda w: w.rank.copy(w.out[0:2], w.data[0:1], tb=0), "differ in size"),
    (lambda w: w.rank.copy(w.out[0:1], w.theirs[0:1], tb=0), "is not of rank 0"),
    (lambda w: w.rank.copy(w.out, w.data, tb=0), "must be part of a buffer"),
    (lambda w: w.rank.unpack_packets(w.out[0:1], w.data[0:1], tb=0), "packets are in scratch"),
    (lambda w: w.rank.copy_packets(w.out[0:1], w.data[0:1], tb=0), "packets are in scratch"),
    (lambda w: w.rank.reduce(w.data[0:1], [], tb=0), "nothing to reduce with"),
    (lambda w: w.rank.barrier([1, 1]), "listed twice"),
    (lambda w: w.memory.put(w.out[0:1], w.data[0:1], tb=0), "remote chunk .* is not of rank 1"),
    (lambda w: w.memory.get(w.theirs[0:1], w.data[0:1], tb=0), "is not of rank 1"),
    (lambda w: w.memory.put_packets(w.theirs[0:1], w.data[0:1], tb=0), "packets are in scratch"),
    (lambda w: w.memory.signal(tb=0, data_sync="both"), "must be a SyncType"),
    (lambda w: w.switch.at_rank(0).reduce(3, 2, w.data[0:1], tb=0), "the size is 2"),
    (lambda w: w.switch.at_rank(0).reduce(3, 2, w.data[0:2], tb=0), r"\[3:5\] is not within"),
    (lambda w: w.switch.at_rank(0).broadcast_packets(w.data[0:1], 0, 1, tb=0), "scratch only"),
    (low, r"\[1:3\] is not within the 2 chunks of scratch of rank 0"),
    (lambda w: w.rank.copy(Chunk(0, BufferType.output, 9, 1), w.data[0:1], tb=0), "there is no"),
    (lambda w: LoopIterationContext(unit=0, num_chunks=1), "unit must be a positive integer"),
    (nested_loops, "a loop within a loop"),
    (lambda w: w.memory.signal(tb=0), "rank 0 signals rank 1 once .* rank 1 waits never"),
    (lambda w: w.back.wait(tb=0), "rank 0 signals rank 1 never .* rank 1 waits once"),
    (wait_in_a_loop, "rank 1 waits never"),
    (lambda w: CollectiveProgram("b", AllReduce(1, 1, True), 1).__enter__(), "inside of program"),
]


def plan_of(body: Callable[[World], object]) -> Plan:
    with CollectiveProgram("wrong", AllReduce(2, 2, True), 2) as program:
        body(World())
    return program.plan()


@pytest.mark.parametrize(("body", "says"), WRONG, ids=[str(n) for n in range(len(WRONG))])
def test_the_message_begins_with_the_line_that_is_wrong(
    body: Callable[[World], object], says: str
) -> None:
    with pytest.raises(ProgramError, match=says) as raised:
        plan_of(body)
    location = raised.value.locations[0]
    lines, first = inspect.getsourcelines(body)
    assert location.file == __file__
    assert first <= location.line < first + len(lines)
    assert str(raised.value).startswith(f"{__file__}:{location.line}: ")
    assert location.text() in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"num_ranks": 3}, "one of 2 ranks, not of 3"),
        ({"instances": 0}, "instances must be a positive integer"),
        ({"instr_fusion": "no"}, "instr_fusion must be True or False, not 'no'"),
        ({"auto_sync": None}, "auto_sync must be True or False, not None"),
        ({"reuse_resources": "no"}, "reuse_resources must be True or False"),
        ({"use_double_scratch_buffer": 2}, "use_double_scratch_buffer must be True or False"),
        ({"min_message_size": "a"}, "min_message_size must be a number of bytes, not 'a'"),
        ({"max_message_size": 1.5}, "max_message_size must be a number of bytes, not 1.5"),
        ({"name": ""}, "name must be a text, not ''"),
        ({"name": None}, "name must be a text, not None"),
        ({"num_threads_per_block": 0}, "num_threads_per_block must be a positive integer, not 0"),
        ({"num_threads_per_block": 2048}, "2048 threads: a block has at most 1024"),
        ({"buffer_alignment": 0}, "buffer_alignment must be a positive integer, not 0"),
        ({"instances": 10**9}, "at most 1024 thread blocks"),
        ({"protocol": "LL128"}, "'Simple' or 'LL'"),
        ({"collective": "allreduce"}, "must be one of mscclpp.language.collectives"),
        ({"replication_policy": "none"}, "must be a ReplicationPolicy"),
        ({"min_message_size": 2, "max_message_size": 1}, "no message has 2 to 1 bytes"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, object], says: str) -> None:
    right = {"name": "wrong", "collective": AllReduce(2, 1, True), "num_ranks": 2}
    with pytest.raises(ProgramError, match=says):
        CollectiveProgram(**{**right, **settings})  # type: ignore[arg-type]


def test_outside_of_a_program_there_is_nothing_to_call() -> None:
    for call in (lambda: Rank(0), lambda: MemoryChannel(1, 0), lambda: Buffer(0, 1), JSON):
        with pytest.raises(ProgramError, match="there is no program here"):
            call()
    with CollectiveProgram("ended", AllReduce(2, 1, True), 2):
        channel = MemoryChannel(1, 0)
    belongs = "program 'ended', to which this belongs"
    with pytest.raises(ProgramError, match=belongs):
        channel.signal(tb=0)
    other = CollectiveProgram("other", AllReduce(2, 1, True), 2)
    with other, pytest.raises(ProgramError, match=belongs):
        channel.signal(tb=0)


def test_a_program_that_failed_leaves_room_for_the_next() -> None:
    first, loop = CollectiveProgram("a", AllReduce(1, 1, True), 1), LoopIterationContext(1, 1)
    with pytest.raises(ZeroDivisionError), first, loop:
        raise ZeroDivisionError
    with CollectiveProgram("b", AllReduce(1, 1, True), 1) as program:
        assert '"name": "b"' in JSON()
    assert program.location == Location(__file__, program.location.line)
