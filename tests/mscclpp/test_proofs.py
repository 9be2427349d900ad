"""What the proof says of right programs, and of every way in which one may be wrong: the line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import mscclpp
from mscclpp import engine
from mscclpp.language import (
    AllGather,
    AllReduce,
    Buffer,
    CollectiveProgram,
    LoopIterationContext,
    MemoryChannel,
    ProgramError,
    Rank,
    ReduceScatter,
    Semaphore,
    SendRecv,
    TestCollective,
)
from mscclpp.language.collectives import Collective

Write = Callable[..., CollectiveProgram]
PROVED = [
    "all_gather_port",
    "all_gather_semaphores",
    "all_reduce_exchange",
    "all_reduce_locked",
    "all_reduce_one_shot",
    "all_reduce_packets",
    "all_reduce_packets_relayed",
    "all_reduce_switch",
    "all_reduce_two_shot",
    "all_to_all_group",
    "reduce_scatter_pull",
]


@pytest.mark.parametrize("name", PROVED)
@pytest.mark.parametrize("settings", [{}, {"instances": 2}, {"instr_fusion": False}])
def test_right_programs_are_proved(
    write_program: Write, name: str, settings: dict[str, object]
) -> None:
    report = write_program(name, **settings).verify()
    assert report, str(report)
    assert str(report) == "no findings\n"


@pytest.mark.parametrize("ranks", [3, 8])
def test_right_programs_are_proved_for_more_ranks(write_program: Write, ranks: int) -> None:
    for name in PROVED:
        if name == "all_reduce_packets" or (name == "all_reduce_locked" and ranks > 4):
            continue
        report = write_program(name, ranks=ranks).verify()
        assert report, str(report)


def test_eight_ranks_with_eight_instances_are_proved(write_program: Write) -> None:
    report = write_program("all_reduce_two_shot", ranks=8, instances=8).verify()
    assert report.flat
    assert report.rank_order


def test_packets_that_may_come_too_early_need_two_halves_of_scratch(write_program: Write) -> None:
    report = write_program("all_reduce_one_shot", ranks=3, double=False).verify()
    finding = report.findings[0]
    assert finding.kind == "race"
    assert "with the write of rank 2, thread block 0 in the next execution" in finding.message
    assert "more with these lines" in str(report)
    assert str(report).count("race:") < len(report.findings)


class Pair:
    """Two ranks, and what programs of them need."""

    def __init__(self) -> None:
        self.ranks = [Rank(0), Rank(1)]
        self.input = [rank.get_input_buffer() for rank in self.ranks]
        self.output = [rank.get_output_buffer() for rank in self.ranks]
        self.to_peer = [MemoryChannel(1 - me, me) for me in range(2)]

    def exchange(self, tb: int = 0) -> None:
        """Each rank knows that the other has come so far."""
        for channel in self.to_peer:
            channel.signal(tb=tb)
        for channel in self.to_peer:
            channel.wait(tb=tb)


Body = Callable[[Pair], None]


def all_gather(body: Body, **settings: object) -> CollectiveProgram:
    with CollectiveProgram("gather", AllGather(2, 1, False), 2, **settings) as program:
        pair = Pair()
        for me in range(2):
            pair.ranks[me].copy(pair.output[me][me : me + 1], pair.input[me][0:1], tb=0)
        body(pair)
    return program


def put_to_the_other(pair: Pair) -> None:
    pair.exchange()
    for me in range(2):
        pair.to_peer[me].put(pair.output[1 - me][me : me + 1], pair.input[me][0:1], tb=0)
    pair.exchange()


def nobody_waits_before(pair: Pair) -> None:
    for me in range(2):
        pair.to_peer[me].put(pair.output[1 - me][me : me + 1], pair.input[me][0:1], tb=0)  # here
    pair.exchange()


def nobody_waits_after(pair: Pair) -> None:
    pair.exchange()
    for me in range(2):
        pair.to_peer[me].put(pair.output[1 - me][me : me + 1], pair.input[me][0:1], tb=0)  # here


def signals_come_before_the_data(pair: Pair) -> None:
    slots = [Buffer(me, 1) for me in range(2)]
    for me in range(2):
        pair.to_peer[me].signal(tb=0)
        pair.to_peer[me].put(slots[1 - me][0:1], pair.input[me][0:1], tb=0)  # and here
        pair.to_peer[me].wait(tb=0)
        other = pair.output[me][1 - me : 2 - me]
        pair.ranks[me].copy(other, slots[me][0:1], tb=0)  # here
    pair.exchange()


def slots_are_used_again_too_early(pair: Pair) -> None:
    slots = [Buffer(me, 1) for me in range(2)]
    for me in range(2):
        pair.to_peer[me].put(slots[1 - me][0:1], pair.input[me][0:1], tb=0)  # and here
    pair.exchange()
    for me in range(2):
        other = pair.output[me][1 - me : 2 - me]
        pair.ranks[me].copy(other, slots[me][0:1], tb=0)  # here


def thread_blocks_do_not_wait_for_each_other(pair: Pair) -> None:
    slots = [Buffer(me, 1) for me in range(2)]
    for me in range(2):
        pair.ranks[me].copy(slots[me][0:1], pair.input[me][0:1], tb=1)  # here
    pair.exchange()
    for me in range(2):
        pair.to_peer[me].put(pair.output[1 - me][me : me + 1], slots[me][0:1], tb=0)  # and here
    pair.exchange()


def all_wait_first(pair: Pair) -> None:
    for channel in pair.to_peer:
        channel.wait(tb=0)  # here
    for channel in pair.to_peer:
        channel.signal(tb=0)


def released_twice(pair: Pair) -> None:
    put_to_the_other(pair)
    ready = Semaphore(1, initial_value=0)
    ready.release(tb=0)
    ready.release(tb=0)  # here
    ready.acquire(tb=1)


def acquired_twice(pair: Pair) -> None:
    put_to_the_other(pair)
    ready = Semaphore(1, initial_value=1)
    ready.release(tb=0)
    ready.acquire(tb=1)
    ready.acquire(tb=1)  # here


def nobody_has_written(pair: Pair) -> None:
    pair.exchange()
    for me in range(2):
        slot = Buffer(me, 1)
        pair.to_peer[me].put(pair.output[1 - me][me : me + 1], slot[0:1], tb=0)  # here
    pair.exchange()


def packets_are_taken_for_data(pair: Pair) -> None:
    pair.exchange()
    for me in range(2):
        slot = Buffer(me, 1)
        pair.ranks[me].copy_packets(slot[0:1], pair.input[me][0:1], tb=0)  # and here
        pair.to_peer[me].put(pair.output[1 - me][me : me + 1], slot[0:1], tb=0)  # here
    pair.exchange()


def own_data_in_place_of_the_others(pair: Pair) -> None:
    pair.exchange()
    for me in range(2):
        other = pair.output[me][1 - me : 2 - me]
        pair.ranks[me].copy(other, pair.input[me][0:1], tb=0)  # here
    pair.exchange()


def acquired_before_all_have_released(pair: Pair) -> None:
    slots = [Buffer(me, 2) for me in range(2)]
    for me in range(2):
        rank, done = pair.ranks[me], Semaphore(me, initial_value=0)
        for block in (1, 2):
            rank.copy(slots[me][block - 1 : block], pair.input[me][0:1], tb=block)  # here
            done.release(tb=block)
        done.acquire(tb=0)  # of one of the two, and it is not known of which
        rank.copy(pair.output[me][1 - me : 2 - me], slots[me][1:2], tb=0)  # and here
        done.acquire(tb=0)


def acquired_before_it_is_released(pair: Pair) -> None:
    ready = Semaphore(0, initial_value=0)
    ready.acquire(tb=0)  # here
    ready.release(tb=0)


def a_channel_of_two_blocks(pair: Pair, *, barrier: bool) -> None:
    """Both blocks signal the same channel: first when their rank has begun, then with the data."""
    for me in range(2):
        pair.to_peer[me].signal(tb=1)
        pair.to_peer[me].wait(tb=0)
        if barrier:
            pair.ranks[me].barrier([0, 1])
    for me in range(2):
        pair.to_peer[me].put(pair.output[1 - me][me : me + 1], pair.input[me][0:1], tb=0)  # here
        pair.to_peer[me].signal(tb=0)
        pair.to_peer[me].wait(tb=1)


def test_several_blocks_may_use_one_channel_in_order() -> None:
    report = all_gather(lambda pair: a_channel_of_two_blocks(pair, barrier=True)).verify()
    assert report, str(report)


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        (acquired_before_all_have_released, "race", "scratch[1] of rank 0, and nothing orders"),
        (nobody_waits_before, "race", "thread block 0 uses output[0] of rank 1, whose caller may"),
        (nobody_waits_after, "race", "output[1] of rank 0, which may have returned to its caller"),
        (signals_come_before_the_data, "race", "with the write of rank 0, thread block 0"),
        (slots_are_used_again_too_early, "race", "thread block 0 in the next execution"),
        (thread_blocks_do_not_wait_for_each_other, "race", "with the read of rank 1, thread"),
        (all_wait_first, "deadlock", "thread block 0 waits in 'wait'; and so they wait for"),
        (released_twice, "unmatched", "rank 1, thread block 0 releases a semaphore that nobody"),
        (acquired_twice, "unmatched", "rank 1, thread block 1 acquires a semaphore that nobody"),
        (nobody_has_written, "uninitialized", "scratch[0] of rank 1, which nobody has written"),
        (packets_are_taken_for_data, "packet", "of rank 1 as raw data, but it holds packets"),
        (own_data_in_place_of_the_others, "wrong result",
         "output[0] of rank 1 has input[0] of rank 1 instead of input[0] of rank 0"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(body: Body, kind: str, says: str) -> None:
    report = all_gather(body).verify()
    assert not report
    finding = report.findings[0]
    assert (finding.kind, says in finding.message) == (kind, True), str(finding)
    first, *others = finding.locations
    assert (first.file, first.text().endswith("# here")) == (__file__, True), str(finding)
    if (
        "# and here"
        in Path(__file__).read_text().split(f"def {body.__name__}")[1].split("\n\n\n")[0]
    ):
        assert [line.text().endswith("# and here") for line in others] == [True], str(finding)
    for instances in (1, 3):  # what is wrong is told of one instance, whatever their number
        with pytest.raises(mscclpp.NotProved) as error:
            mscclpp.compile(all_gather(body, instances=instances))
        assert str(error.value).startswith(f"{first}: {kind}: ")
        assert error.value.report.findings[0] == finding


def test_the_shortest_run_to_what_is_wrong_is_told() -> None:
    finding = all_gather(slots_are_used_again_too_early).verify().findings[0]
    # The other rank has put, signalled, and ended; so it may be at its next put by now.
    assert {(event.rank, event.operation, event.execution) for event in finding.run} == {
        (0, "copy", 0),
        (1, "signal", 0),
    }
    assert f"rank 1, thread block 0: signal at {finding.run[1].locations[0]}" in str(finding)


def incomplete_sum(*, missing: bool) -> CollectiveProgram:
    """Rank 0 reduces and puts to the others; without one of them it is wrong."""
    ranks = 3
    with CollectiveProgram("reduce", AllReduce(ranks, 1, True), ranks) as program:
        pairs = [(peer, me) for me in range(ranks) for peer in range(ranks) if peer != me]
        channels = {pair: MemoryChannel(*pair) for pair in pairs}
        data = [Rank(me).get_input_buffer()[0:ranks] for me in range(ranks)]
        for pair in pairs:
            channels[pair].signal(tb=0)
        for pair in pairs:
            channels[pair].wait(tb=0)
        for peer in (1,) if missing else (1, 2):
            channels[peer, 0].reduce(data[0], [data[peer]], tb=0)  # here
        for peer in (1, 2):
            channels[peer, 0].put(data[peer], data[0], tb=0)  # brought
        for pair in pairs:
            channels[pair].signal(tb=0)
        for pair in pairs:
            channels[pair].wait(tb=0)
    return program


def test_a_wrong_sum_is_told_with_who_made_it_and_who_brought_it() -> None:
    assert incomplete_sum(missing=False).verify()
    findings = incomplete_sum(missing=True).verify().findings
    assert {finding.kind for finding in findings} == {"wrong result"}
    first, second = findings[:2]
    assert first.message == "input[0] of rank 0 lacks input[0] of rank 2"
    assert (first.rank, first.thread_block, first.chunk) == (0, 0, "input[0] of rank 0")
    assert [line.text()[-6:] for line in first.locations] == ["# here"]
    assert second.message == "input[0] of rank 1 lacks input[0] of rank 2"
    assert [line.text().split("# ")[1] for line in second.locations] == ["here", "brought"]


def test_what_nobody_writes_is_told_with_the_program() -> None:
    program = all_gather(Pair.exchange)
    finding, other = program.verify().findings
    should = "which should be made of input[0] of rank"
    assert finding.message == f"nobody writes output[0] of rank 1, {should} 0"
    assert other.message == f"nobody writes output[1] of rank 0, {should} 1"
    assert finding.locations == (program.location,)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_ranks_that_begin_with_their_own_contribution_get_the_same_bits(
    write_program: Write, ranks: int
) -> None:
    report = write_program("all_reduce_exchange", ranks=ranks).verify()
    assert report
    assert report.rank_order
    assert report.flat


def test_ranks_that_reduce_in_different_orders_are_told() -> None:
    ranks = 3
    with CollectiveProgram("orders", AllReduce(ranks, 1, False), ranks) as program:
        channels = {
            (peer, me): MemoryChannel(peer, me)
            for me in range(ranks)
            for peer in range(ranks)
            if peer != me
        }

        def exchange() -> None:
            for channel in channels.values():
                channel.signal(tb=0)
            for channel in channels.values():
                channel.wait(tb=0)

        exchange()
        given = [Rank(me).get_input_buffer()[0:ranks] for me in range(ranks)]
        for me in range(ranks):
            first, second = (me + 1) % ranks, (me + 2) % ranks
            sum_of_two = Buffer(me, ranks)[0:ranks]
            channels[first, me].reduce(given[me], [given[first]], tb=0, local_dst_chunk=sum_of_two)
            whole = Rank(me).get_output_buffer()[0:ranks]
            last = [given[second]]
            channels[second, me].reduce(sum_of_two, last, tb=0, local_dst_chunk=whole)  # here
        exchange()
    finding = program.verify().findings[0]
    assert (finding.kind, finding.rank) == ("bits", 1)
    assert "last bits differ" in finding.message
    assert finding.locations[0].text().endswith("# here")


def refused(collective: object, body: Body) -> ProgramError:
    with CollectiveProgram("refused", collective, 2) as program:  # type: ignore[arg-type]
        body(Pair())
    with pytest.raises(ProgramError) as error:
        program.verify()
    return error.value


def writes_to_the_input(pair: Pair) -> None:
    pair.ranks[0].copy(pair.input[0][0:1], pair.output[0][0:1], tb=0)  # here


def moves_to_another_part(pair: Pair) -> None:
    pair.ranks[0].copy(pair.output[0][1:2], pair.input[0][0:1], tb=0)  # here


def packets_that_nobody_reads(pair: Pair) -> None:
    pair.to_peer[0].put_packets(Buffer(1, 1)[0:1], pair.input[0][0:1], tb=0)  # here


def packets_that_nobody_writes(pair: Pair) -> None:
    pair.ranks[0].unpack_packets(pair.output[0][0:1], Buffer(0, 1)[0:1], tb=0)  # here


def packets_in_one_slot_twice(pair: Pair) -> None:
    slot = Buffer(1, 1)[0:1]
    for part in range(2):
        pair.to_peer[0].put_packets(slot, pair.input[0][part : part + 1], tb=0)  # here
        pair.ranks[1].unpack_packets(pair.output[1][part : part + 1], slot, tb=0)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (writes_to_the_input, "'copy': it writes to the input of rank 0"),
        (moves_to_another_part, "chunk 0 and chunk 1 are different parts of the data"),
        (packets_that_nobody_reads, "nobody reads the packets"),
        (packets_that_nobody_writes, "nobody writes packets to scratch[0] of rank 0"),
        (acquired_before_it_is_released, "'sem_acquire': it waits for ever"),
        (packets_in_one_slot_twice, "scratch[0] of rank 1 gets packets twice in one execution"),
    ],
)
def test_what_makes_no_sense_is_told_with_its_line(body: Body, says: str) -> None:
    error = refused(AllReduce(2, 1, False), body)
    assert says in str(error)
    assert not isinstance(error, mscclpp.CannotVerify)
    assert error.locations[0].text().endswith("# here")


def test_a_lock_is_proved_whoever_takes_it_first(write_program: Write) -> None:
    with CollectiveProgram("copies", AllReduce(1, 1, False), 1) as program:
        lock = Semaphore(0, initial_value=1)
        for tb in range(5):
            lock.acquire(tb=tb)
            Rank(0).copy(Rank(0).get_output_buffer()[0:1], Rank(0).get_input_buffer()[0:1], tb=tb)
            lock.release(tb=tb)
    report = program.verify()
    assert report, str(report)
    unlocked = write_program("all_reduce_locked", lock=False).verify()
    assert unlocked.findings[0].kind == "race"


def test_locks_taken_in_opposite_orders_wait_for_ever() -> None:
    with CollectiveProgram("locks", AllReduce(1, 1, True), 1) as program:
        locks = [Semaphore(0, initial_value=1) for _ in range(2)]
        for tb in range(2):
            locks[tb].acquire(tb=tb)
            locks[1 - tb].acquire(tb=tb)  # here
            for lock in locks:
                lock.release(tb=tb)
    with pytest.raises(ProgramError, match="it waits for ever, if others that wait") as error:
        program.verify()
    assert not isinstance(error.value, mscclpp.CannotVerify)
    assert error.value.locations[0].text().endswith("# here")


def test_what_is_right_in_one_order_alone_is_wrong() -> None:
    """Each block takes what may be the other's: the second one may come first."""
    with CollectiveProgram("either", AllReduce(1, 2, False), 1) as program:
        data, out = Rank(0).get_input_buffer(), Rank(0).get_output_buffer()
        slot, ready = Buffer(0, 2), Semaphore(0, initial_value=0)
        for part in range(2):
            Rank(0).copy(slot[part : part + 1], data[part : part + 1], tb=0)
            ready.release(tb=0)
        for part in range(2):
            ready.acquire(tb=1 + part)
            Rank(0).copy(out[part : part + 1], slot[part : part + 1], tb=1 + part)  # here
    (finding,) = program.verify().findings
    assert finding.kind == "race"
    assert (finding.rank, finding.thread_block, finding.chunk) == (0, 2, "scratch[1] of rank 0")
    assert finding.locations[0].text().endswith("# here")


def more_chunks_than_an_iteration_has(pair: Pair) -> None:
    with LoopIterationContext(unit=1024, num_chunks=1):
        pair.ranks[0].copy(pair.output[0][0:2], pair.input[0][0:2], tb=0)  # here


def fewer_chunks_than_an_iteration_has(pair: Pair) -> None:
    with LoopIterationContext(unit=1024, num_chunks=2):
        pair.ranks[0].copy(pair.output[0][0:1], pair.input[0][0:1], tb=0)  # here


@pytest.mark.parametrize(
    ("body", "operation", "loop"),
    [(more_chunks_than_an_iteration_has, 2, 1), (fewer_chunks_than_an_iteration_has, 1, 2)],
)
def test_all_of_a_loop_is_as_large_as_the_loop_says(body: Body, operation: int, loop: int) -> None:
    error = refused(AllReduce(2, 1, False), body)
    assert not isinstance(error, mscclpp.CannotVerify)
    assert f"on chunks of size {operation} in a loop of num_chunks={loop}" in str(error)
    assert f"give the loop num_chunks={operation}" in str(error)
    assert error.locations[0].text().endswith("# here")


OPEN = [SendRecv(2, 2, False), SendRecv(2, 2, True), TestCollective(2, 2, 3)]


@pytest.mark.parametrize("collective", OPEN)
@pytest.mark.parametrize("instances", [1, 2])
def test_programs_that_promise_nothing_are_proved_to_end_and_not_to_race(
    write_program: Write, collective: Collective, instances: int
) -> None:
    def kinds(**settings: bool) -> set[str]:
        program = write_program("send_reversed", collective=collective, **settings)
        return {finding.kind for finding in program.verify().findings}

    program = write_program("send_reversed", collective=collective, instances=instances)
    assert program.verify(), str(program.verify())
    assert "no result is promised" in program.explain()
    assert kinds(shows=False) == {"uninitialized"}
    assert "race" in kinds(waits=False)


def test_what_promises_no_result_serves_no_calls(write_program: Write) -> None:
    algorithm = mscclpp.compile(write_program("send_reversed"))
    with pytest.raises(ValueError, match=r"is a program of 'sendrecv'.* serves no calls"):
        mscclpp.register(algorithm)


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize(("ranks", "blocks"), [(2, 1), (3, 2), (8, 1)])
def test_a_reduce_scatter_in_place_may_use_the_whole_input(
    write_program: Write, ranks: int, blocks: int, instances: int
) -> None:
    program = write_program("reduce_scatter_ring", ranks=ranks, blocks=blocks, instances=instances)
    report = program.verify()
    assert report, str(report)
    assert report.in_place_safe


@pytest.mark.parametrize(
    ("left_out", "says"),
    [
        ("begin", "that rank may not have begun, so wait for a signal from it first"),
        ("middle", "nothing orders that with the write"),
        ("end", "which may have returned to its caller by then"),
    ],
)
def test_a_race_for_the_whole_input_names_it(
    write_program: Write, left_out: str, says: str
) -> None:
    found = write_program("reduce_scatter_ring", left_out=left_out).verify().findings
    races = [finding for finding in found if finding.kind == "race" and says in finding.message]
    assert races
    for finding in races:
        assert finding.chunk is not None
        assert finding.chunk.startswith("input[")
        assert finding.locations[0].text().startswith("channels[before[me], me, tb].reduce(")


def two_blocks_share_the_own_block(pair: Pair) -> None:
    scratch = [Buffer(rank, 2) for rank in range(2)]
    pair.exchange()
    for me in range(2):
        sent = slice(2 - 2 * me, 4 - 2 * me)
        pair.to_peer[me].put(scratch[1 - me][0:2], pair.input[me][sent], tb=0)
    pair.exchange()
    for me in range(2):
        for tb in range(2):
            pair.ranks[me].barrier([0, 1])
            part = pair.input[me][2 * me + tb : 2 * me + tb + 1]
            pair.ranks[me].reduce(part, [scratch[me][tb : tb + 1]], tb=tb)
        pair.ranks[me].barrier([0, 1])
        own = slice(2 * me, 2 * me + 2)
        pair.ranks[me].copy(scratch[me][0:2], pair.input[me][own], tb=1)
        pair.ranks[me].copy(pair.input[me][own], scratch[me][0:2], tb=1)


def test_thread_blocks_may_share_the_own_block_in_place() -> None:
    with CollectiveProgram("shared", ReduceScatter(2, 2, True), 2) as program:
        pair = Pair()
        two_blocks_share_the_own_block(pair)
    report = program.verify()
    assert report, str(report)


def test_a_race_in_place_names_the_input(write_program: Write) -> None:
    program = write_program("reduce_scatter_pull", ranks=2, in_place=True)
    assert program.verify()
    with CollectiveProgram("late", ReduceScatter(2, 1, True), 2) as racing:
        pair = Pair()
        pair.exchange()
        for me in range(2):
            mine, theirs = (pair.input[rank][me : me + 1] for rank in (me, 1 - me))
            pair.to_peer[me].reduce(mine, [theirs], tb=0)
    found = racing.verify().findings
    assert any(finding.chunk and finding.chunk.startswith("input[") for finding in found)


def test_proofs_need_neither_torch_nor_torchcomms() -> None:
    program = Path(__file__).parent / "programs" / "all_reduce_two_shot.py"
    source = (
        "import sys, runpy, mscclpp\n"
        f"program = runpy.run_path({str(program)!r})['program']\n"
        "algorithm = mscclpp.compile(program(ranks=4, instances=2))\n"
        "assert algorithm.report and 'res' in algorithm.program.explain()\n"
        "print('torch' in sys.modules, 'torchcomms' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("False False\n", "")


def test_packets_are_no_data_where_both_are_in_scratch(write_program: Write) -> None:
    program = write_program("all_reduce_packets_relayed", unpacks=False)
    with pytest.raises(ProgramError, match="which gets packets") as error:
        program.verify()
    assert not isinstance(error.value, mscclpp.CannotVerify)
    assert error.value.locations[0].text().startswith("rank.copy(part, ")


@pytest.mark.parametrize("slots", [1, 2])
def test_scratch_may_be_used_again_for_another_part(slots: int) -> None:
    """Chunk by chunk from rank 0 to the scratch of 1, to that of 2, to its output."""
    with CollectiveProgram("relay", AllGather(3, 2, False), 3) as program:
        pairs = [(a, b) for b in range(3) for a in range(3) if a != b]
        channels = {pair: MemoryChannel(*pair) for pair in pairs}

        def exchange() -> None:
            for channel in channels.values():
                channel.signal(tb=0)
            for channel in channels.values():
                channel.wait(tb=0)

        everybody = [Rank(r) for r in range(3)]
        inputs = [rank.get_input_buffer() for rank in everybody]
        outputs = [rank.get_output_buffer() for rank in everybody]
        scratch = [Buffer(r, 2) for r in range(3)]
        exchange()
        for r in range(3):
            everybody[r].copy(outputs[r][2 * r : 2 * r + 2], inputs[r][0:2], tb=0)
        for to, source in pairs:
            if (to, source) != (2, 0):
                block = outputs[to][2 * source : 2 * source + 2]
                channels[to, source].put(block, inputs[source][0:2], tb=0)
        for k in range(2):
            slot = k % slots
            channels[1, 0].put(scratch[1][slot : slot + 1], inputs[0][k : k + 1], tb=0)
            exchange()
            channels[2, 1].put(scratch[2][slot : slot + 1], scratch[1][slot : slot + 1], tb=0)
            exchange()
            everybody[2].copy(outputs[2][k : k + 1], scratch[2][slot : slot + 1], tb=0)
            exchange()
    report = program.verify()
    assert report, str(report)


def packets_of_one_iteration() -> None:
    pair = Pair()
    slots = [Buffer(me, 2)[0:2] for me in range(2)]
    with LoopIterationContext(unit=4096, num_chunks=2):
        for me in range(2):
            pair.to_peer[me].put_packets(slots[1 - me], pair.input[me][0:2], tb=0)
        for me in range(2):
            pair.ranks[me].reduce(pair.input[me][0:2], [slots[me]], tb=0, packet=True)


def two_places() -> None:
    free, full, slot = Semaphore(0, 2), Semaphore(0, 0), Buffer(0, 1)[0:1]
    data = Rank(0).get_input_buffer()[0:1]
    with LoopIterationContext(unit=1024, num_chunks=1):
        free.acquire(tb=0)
        Rank(0).copy(slot, data, tb=0)
    full.release(tb=0)
    full.acquire(tb=1)
    with LoopIterationContext(unit=1024, num_chunks=1):
        Rank(0).copy(data, slot, tb=1)
        free.release(tb=1)


def two_releases() -> None:
    done, slot, data = Semaphore(0, 0), Buffer(0, 1)[0:1], Rank(0).get_input_buffer()[0:1]
    with LoopIterationContext(unit=1024, num_chunks=1):
        Rank(0).copy(slot, data, tb=0)
        done.release(tb=0)
    done.acquire(tb=1)
    done.acquire(tb=1)
    Rank(0).copy(data, slot, tb=1)


@pytest.mark.parametrize(
    ("body", "ranks", "iterations"),
    [(packets_of_one_iteration, 2, 1), (two_places, 1, 4), (two_releases, 1, 1)],
)
def test_loops_are_proved_for_other_numbers_of_iterations(
    body: Callable[[], None], ranks: int, iterations: int
) -> None:
    with CollectiveProgram("loop", AllReduce(ranks, 1, True), ranks) as program:
        body()
    try:
        said = str(program.verify())
    except ProgramError as error:
        said = str(error)
    assert f"where loops have {iterations} iterations" in said


def joined(blocks: int) -> CollectiveProgram:
    """Blocks release once, others acquire, meet, and use what the first have written."""
    with CollectiveProgram("join", AllReduce(1, blocks, True), 1) as program:
        data, scratch, done = Rank(0).get_input_buffer(), Buffer(0, blocks), Semaphore(0, 0)
        for tb in range(blocks):
            Rank(0).copy(scratch[tb : tb + 1], data[tb : tb + 1], tb=tb)
            done.release(tb=tb)
        for tb in range(blocks):
            done.acquire(tb=blocks + tb)
        Rank(0).barrier(list(range(blocks, 2 * blocks)))
        for tb in range(blocks):
            Rank(0).copy(data[tb : tb + 1], scratch[tb : tb + 1], tb=blocks + tb)
    return program


def test_who_meets_knows_what_each_has_waited_for() -> None:
    program = joined(2)
    report = program.verify()
    assert report, str(report)
    assert engine.call("lower", program=json.loads(program.to_json())) == report.lowered


def test_what_cannot_be_judged_is_no_wrong_plan_of_a_file() -> None:
    program = joined(7)
    with pytest.raises(mscclpp.CannotVerify, match="in more than 2000 orders in all") as error:
        program.verify()
    assert error.value.locations[0].text() == "done.acquire(tb=blocks + tb)"
    with pytest.raises(engine.EngineError, match="nothing orders"):
        engine.call("lower", program=json.loads(program.to_json()))


def test_chunks_of_one_operation_are_of_one_size() -> None:
    with CollectiveProgram("sizes", AllReduce(1, 2, True), 1, instr_fusion=False) as program:
        data, scratch = Rank(0).get_input_buffer(), Buffer(0, 2)
        Rank(0).copy(scratch[0:2], data[0:2], tb=0)
        Rank(0).reduce(data[0:2], [scratch[0:2]], tb=0)
    plan = json.loads(program.to_json())
    operations = [op for op in plan["gpus"][0]["threadblocks"][0]["ops"] if op["name"] == "re"]
    operations[0]["src_buff"][1]["size"] = 1
    answer = engine.call("prove", program=plan)
    assert "2 and 1 chunks at a time" in answer["refused"]["why"]


def test_chunks_of_scratch_that_overlap_are_told_with_the_line() -> None:
    with CollectiveProgram("overlap", AllReduce(1, 3, True), 1) as program:
        data, scratch = Rank(0).get_input_buffer(), Buffer(0, 3)
        Rank(0).copy(scratch[0:3], data[0:3], tb=0)
        Rank(0).copy(scratch[0:2], scratch[1:3], tb=0)  # here
    with pytest.raises(
        ProgramError, match="thread block 0, 'copy': a destination overlaps"
    ) as error:
        program.verify()
    assert error.value.locations[0].text().endswith("# here")


def test_thread_blocks_that_do_nothing_cost_nothing() -> None:
    with CollectiveProgram("high", AllReduce(2, 1, True), 2) as program:
        data = [Rank(r).get_input_buffer() for r in range(2)]
        for r in range(2):
            Rank(r).copy(data[r][0:1], data[r][0:1], tb=1000)
    assert {finding.kind for finding in program.verify().findings} == {"wrong result"}


def test_sums_that_double_are_told_as_wrong() -> None:
    with CollectiveProgram("doubles", AllReduce(1, 1, True), 1) as program:
        data = Rank(0).get_input_buffer()[0:1]
        for _ in range(30):
            Rank(0).reduce(data, [data], tb=0)
    assert not program.verify()


@pytest.mark.parametrize("key", [slice("a", None), 0.5, "a", None])
def test_chunks_have_whole_numbers(key: object) -> None:
    with (
        pytest.raises(ProgramError, match="whole numbers"),
        CollectiveProgram("keys", AllReduce(1, 1, True), 1),
    ):
        _ = Rank(0).get_input_buffer()[key]  # type: ignore[index]
