"""Streams, works, graphs, communicators: how the backend behaves when all goes well."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from harness import Rank
from harness.devices import Cuda
from harness.failing import error_of, until
from harness.matrix import prepared
from harness.operations import OPERATIONS, Arguments, Call

from gpu_ranks import BACKEND, Make, case
from torchcomms import ReduceOp, TorchComm, WorkStatus
from torchcomms.cli.records import job as recorded
from torchcomms.cli.records.calls import collectives, replays
from torchcomms.cli.records.verdicts import judge

COUNT = 1000
LATE_SECONDS = 0.3
GUARD_SECONDS = 60
# Packets, two shots of them, and flows.
COUNTS = (1, 5000, 200_000, 3_000_001)


def _ones(rank: Rank, count: int = COUNT) -> torch.Tensor:
    return torch.full((count,), float(rank.rank + 1), device=rank.device(BACKEND))


def _sum(size: int) -> float:
    return size * (size + 1) / 2


def _check(rank: Rank, tensor: torch.Tensor, expected: float) -> None:
    rank.synchronize(BACKEND)
    found = tensor.cpu()
    assert (found == expected).all(), f"{found[0]} instead of {expected}"


def _works(rank: Rank) -> None:
    comm = rank.comm(BACKEND)
    assert comm.get_backend() == "ctran"
    for count in COUNTS:
        tensor = _ones(rank, count)
        work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        work.wait_blocking()
        assert work.is_completed()
        assert work.status == WorkStatus.COMPLETED
        assert work.exception() is None
        _check(rank, tensor, _sum(rank.size))
        work = comm.all_reduce(tensor, ReduceOp.MAX, async_op=True)
        work.wait()
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)  # behind it, on this stream
        _check(rank, tensor, _sum(rank.size) * rank.size)
        assert work.is_completed()


@case(world=2)
def works_tell_how_far_they_are(make: Make) -> None:
    make(2).run(_works)


def _timed(rank: Rank) -> None:
    """The second of two calls is on the stream at once, and starts when the first has ended."""
    os.environ["CTRAN_GPU_TIMES"] = "1"
    comm = rank.new_comm(BACKEND, "timed")
    tensor = _ones(rank)
    # A busy host may miss the GPU's clock, until a second later.
    for _ in range(GUARD_SECONDS):
        comm.barrier(async_op=False).wait_blocking()
        if rank.rank == 1:
            time.sleep(LATE_SECONDS)
        for _ in range(2):
            comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        rank.synchronize(BACKEND)
        until(lambda: _calls(comm)[-1]["ended"] > 0, "the records to tell the end")
        first, second = _calls(comm)[-2:]
        for call in (first, second):
            assert call["called"] <= call["started"] <= call["ended"]
        shares = [torch.zeros(1, device=tensor.device) for _ in range(2)]
        waited = second["started"] - second["called"] > LATE_SECONDS * 5e8
        own = torch.full((1,), float(waited), device=tensor.device)
        comm.all_gather(shares, own, async_op=False)
        rank.synchronize(BACKEND)
        if shares[0].item() == 1:
            break
        time.sleep(1)
    else:
        raise AssertionError(f"{second} did not start late in {GUARD_SECONDS} attempts")
    comm.finalize()


def _seen(name: str, pid: int) -> recorded.Communicator:
    (found,) = (one for one in recorded.live(pid) if one.name == name)
    return found


def _calls(comm: TorchComm) -> list[dict[str, Any]]:
    calls = collectives(_seen(comm.get_name(), os.getpid()).ranks[comm.get_rank()])
    return [call for _, call in sorted(calls.items()) if call["kind"] == "all_reduce"]


@case(world=2, breaks=True)
def the_gpu_tells_when_it_did_operations(make: Make) -> None:
    make(2).run(_timed)


def _streams(rank: Rank) -> None:
    """One communicator on several streams: in the order of the calls."""
    comm = rank.comm(BACKEND)
    tensor = _ones(rank)
    for _ in range(20):
        with rank.gpu().side_stream():
            comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
            comm.all_reduce(tensor, ReduceOp.AVG, async_op=True).wait()
            comm.barrier(async_op=True).wait()
        other = _ones(rank, 300_000)
        comm.all_reduce(other, ReduceOp.SUM, async_op=True).wait()
        comm.all_reduce(tensor, ReduceOp.MAX, async_op=False)
        _check(rank, other, _sum(rank.size))
    _check(rank, tensor, _sum(rank.size) * rank.size**19)


@case(world=2)
def operations_keep_their_order_across_streams(make: Make) -> None:
    make(2).run(_streams)


def _outlives(rank: Rank) -> None:
    """The program lets go of an input at once, and takes memory of that size again."""
    comm = rank.comm(BACKEND)
    device = rank.device(BACKEND)
    for _ in range(20):
        whole = torch.zeros(rank.size << 16, device=device)
        work = comm.all_gather_single(whole, _ones(rank, 1 << 16), async_op=True)
        garbage = [torch.full((1 << 16,), -1.0, device=device) for _ in range(4)]
        work.wait()
        for r in range(rank.size):
            _check(rank, whole[r << 16 : (r + 1) << 16], r + 1)
        del garbage


@case(world=2)
def tensors_live_as_long_as_they_are_needed(make: Make) -> None:
    make(2).run(_outlives)


def _captured(rank: Rank, async_op: bool, count: int) -> None:
    """Every operation, replayed."""
    for operation in OPERATIONS:
        op = "SUM" if OPERATIONS[operation].reduces else None
        arguments = Arguments(torch.float32, op, 0, (count,) * rank.size, False)
        call = prepared(rank, operation, arguments, BACKEND)
        rank.synchronize(BACKEND)
        replay = rank.gpu().capture(lambda call=call: call.issue(async_op))
        replay()
        rank.synchronize(BACKEND)
        problems = call.problems(torch.equal)
        assert not problems, f"{operation}: {problems}"
        del replay


@case(world=2)
def every_operation_is_captured(make: Make) -> None:
    ranks = make(2)
    for count in (COUNT, 400_000):
        ranks.run(_captured, False, count)
        ranks.run(_captured, True, count)


def _replays(rank: Rank, replays: int) -> None:
    comm = rank.new_comm(BACKEND, "replays")
    tensor = _ones(rank)
    large = _ones(rank, 700_000)

    def step() -> None:
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=True)  # as the documentation prints it
        work = comm.all_reduce(tensor, ReduceOp.AVG, async_op=True)
        work.wait()  # changes nothing
        assert work.is_completed()
        comm.all_reduce(large, ReduceOp.MAX, async_op=False)

    replay = rank.gpu().capture(step)
    eager = _ones(rank)
    for number in range(replays):
        tensor.fill_(float(rank.rank + number))
        rank.synchronize(BACKEND)
        replay()
        if number % 10 == 0:
            eager.fill_(1.0)
            rank.synchronize(BACKEND)
            comm.all_reduce(eager, ReduceOp.SUM, async_op=False)
        _check(rank, tensor, rank.size * number + _sum(rank.size - 1))
    _check(rank, eager, rank.size)
    _check(rank, large, rank.size)
    # A graph may outlive its communicator, which ends with it.
    comm.finalize()
    replay()
    rank.synchronize(BACKEND)


@case(world=2)
def graphs_are_replayed_between_eager_operations(make: Make) -> None:
    make(2).run(_replays, 200)


def _recorded(rank: Rank) -> None:
    os.environ["CTRAN_TRACE_GRAPHS"] = "1"
    comm = rank.new_comm(BACKEND, "recorded")
    tensor = _ones(rank)

    def step() -> None:
        comm.all_reduce(tensor, ReduceOp.MAX, async_op=False)
        comm.broadcast(tensor, 0, async_op=False)

    replay = rank.gpu().capture(step)
    calls = [("all_reduce", 1, 4 * COUNT), ("broadcast", 2, 4 * COUNT)]

    def replayed() -> list[dict[str, Any]]:
        ran = replays(_seen("recorded", os.getpid()).ranks[rank.rank])
        return [one for one in ran if one["ended"] > 0]

    for number in range(1, 4):
        replay()
        rank.synchronize(BACKEND)
        until(lambda: len(replayed()) >= 2 * number, "records of the replay")  # noqa: B023
        assert [(o["kind"], o["number"], o["bytes"]) for o in replayed()] == calls * number
    algorithms = {o["number"]: o["algorithm"] for o in _calls(comm)}
    for one in replayed():
        assert one["started"] <= one["ended"]
        assert one["number"] != 1 or one["algorithm"] == algorithms[1] != ""
    rank.say("replayed")
    if rank.rank == 1:
        rank.listen()  # until it is missed
    replay()
    rank.synchronize(BACKEND)
    until(lambda: len(replayed()) == 8, "records of the last replay")
    comm.finalize()


@case(world=2, breaks=True)
def replays_are_recorded_and_a_rank_that_does_not_replay_is_named(make: Make) -> None:
    job = make(2).start(_recorded)
    assert [job.hear(r) for r in range(2)] == ["replayed"] * 2
    pid = job.ranks.processes[0].pid
    assert pid is not None
    found: list[dict[str, Any]] = []

    def is_missed() -> bool:
        found[:] = judge(_seen("recorded", pid), 0.2)
        return bool(found)

    until(is_missed, "rank 1 is missed")
    (verdict,) = found
    assert (verdict["verdict"], verdict["ranks"], verdict["waiting"]) == ("missing_rank", [1], [0])
    assert "rank 1 has not replayed all_reduce #1 (4000 B)" in verdict["text"]
    job.say(1)
    job.results()


def _broken_replay(rank: Rank) -> None:
    os.environ["CTRAN_TRACE_GRAPHS"] = "1"
    comm = rank.new_comm(BACKEND, "breaks")
    tensor = _ones(rank)
    replay = rank.gpu().capture(lambda: comm.all_reduce(tensor, ReduceOp.MAX, async_op=False))

    def ends() -> list[bool]:
        ran = replays(_seen("breaks", os.getpid()).ranks[rank.rank])
        return [one["ended"] > 0 for one in ran]

    if rank.rank == 0:  # the other one never replays
        replay()
        until(lambda: ends() == [False], "a record of the replay that runs")
        comm.abort()
        until(lambda: ends() == [True], "its end")
        rank.say("aborted")
    else:
        rank.listen()


@case(world=2, breaks=True)
def a_replay_that_an_abort_ends_is_recorded_as_ended(make: Make) -> None:
    job = make(2).start(_broken_replay)
    assert job.hear(0) == "aborted"
    job.say(1)
    job.results()


def _parts(rank: Rank) -> None:
    comm = rank.new_comm(BACKEND, "parts")
    last = rank.size - 1
    turned = comm.split(list(reversed(range(rank.size))), "turned")
    assert turned is not None
    assert turned.get_rank() == last - rank.rank
    tensor = _ones(rank)
    turned.broadcast(tensor, 0, async_op=False)
    _check(rank, tensor, rank.size)
    alone = comm.split([last] if rank.rank == last else [], "alone")
    if alone is not None:
        tensor = _ones(rank)
        alone.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait_blocking()
        _check(rank, tensor, rank.rank + 1)
        alone.finalize()
    turned.finalize()
    comm.finalize()


@case(world=2)
def communicators_are_split(make: Make) -> None:
    make(2).run(_parts)


def _budget(rank: Rank) -> None:
    """The least of all ranks' budgets counts, down to one multiprocessor."""
    os.environ["CTRAN_GPU_SM_BUDGET"] = str(1 + 2 * rank.rank)
    comm = rank.new_comm(BACKEND, "budget")
    del os.environ["CTRAN_GPU_SM_BUDGET"]
    device = rank.device(BACKEND)
    for count in COUNTS:
        tensor = _ones(rank, count)
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        _check(rank, tensor, _sum(rank.size))
        whole = torch.zeros(rank.size * count, device=device)
        comm.all_gather_single(whole, _ones(rank, count), async_op=False)
        part = torch.zeros(count, device=device)
        comm.reduce_scatter_single(part, whole, ReduceOp.SUM, async_op=False)
        _check(rank, part, (rank.rank + 1) * rank.size)
    comm.finalize()


@case(world=2)
def a_budget_of_multiprocessors_is_kept(make: Make) -> None:
    make(2).run(_budget)


def _urgent(rank: Rank) -> None:
    """The hint and the argument, of each backend that has streams, and the hint of one call."""
    gpu = rank.gpu()
    if isinstance(gpu, Cuda):
        return  # whose streams nobody counts
    for backend in (BACKEND, "nccl", "ncclx"):
        hint = {f"torchcomm::{backend.removesuffix('_gpu')}::high_priority_stream": "true"}
        wants: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
            "nothing": ({}, {"async_op": True}),
            "hint": ({"hints": hint}, {"async_op": True}),
            "argument": ({"is_high_priority_stream": True}, {"async_op": True}),
            "hint of a call": ({}, {"async_op": True, "hints": hint}),
            "hint of a call that the stream waits for": ({}, {"async_op": False, "hints": hint}),
        }
        for name, (options, call) in wants.items():
            before = gpu.urgent_streams()
            comm = rank.new_comm(backend, f"{backend}, urgent by {name}", **options)
            tensor = _ones(rank)
            comm.all_reduce(tensor, ReduceOp.SUM, **call).wait()
            _check(rank, tensor, _sum(rank.size))
            comm.finalize()
            made = gpu.urgent_streams() - before
            assert (made > 0) == (name != "nothing"), f"{backend} by {name}: {made}"


@case(world=2)
def streams_are_of_high_priority_where_that_is_wanted(make: Make) -> None:
    make(2).run(_urgent)


def _expandable(rank: Rank) -> None:
    """Torch's allocator may grow its segments: no allocation of theirs holds a large tensor."""
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    comm = rank.new_comm(BACKEND, "expandable")
    for operation in OPERATIONS:
        op = "SUM" if OPERATIONS[operation].reduces else None
        for count in (COUNT, 3_000_001):
            arguments = Arguments(torch.float32, op, 0, (count,) * rank.size, False)
            call = Call(rank.rank, rank.size, arguments, BACKEND, rank.device(BACKEND))
            OPERATIONS[operation].prepare(comm, call)
            call.issue(True).wait()
            rank.synchronize(BACKEND)
            problems = call.problems(torch.equal)
            assert not problems, f"{operation}: {problems}"
    tensor = _ones(rank, 1 << 24)
    refusal = str(error_of(lambda: comm.new_window(tensor)))
    assert "expandable" in refusal, refusal
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)  # nothing is broken
    _check(rank, tensor, _sum(rank.size))
    comm.finalize()


@case(world=2, breaks=True, real=True)
def segments_may_be_expandable(make: Make) -> None:
    make(2).run(_expandable)
