"""GPUs of several hosts: kernels inside each domain of GPUs, the network between the domains."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from harness import Died, Rank, Returned
from harness.data import same_bits
from harness.failing import error_of, until
from harness.operations import OPERATIONS, Arguments, Call

import torchcomms
from gpu_ranks import BACKEND, Make, case
from torchcomms import ReduceOp, TorchComm, plan

# The host of each rank.
EVEN = (0, 0, 1, 1)
MIXED = (0, 1, 0, 1)
ALONE = (0, 1, 2)
UNEVEN = (0, 0, 1)
SHAPES = (EVEN, MIXED, ALONE, UNEVEN)
# A part of a step, one for each rail, and several steps.
COUNTS = (1, 1000, 100_003)
RAILS, HOST = "rails", "through_host"
SOON = timedelta(seconds=2)


@contextmanager
def small_steps() -> Iterator[None]:
    """Of communicators that are made meanwhile."""
    os.environ["CTRAN_GPU_HOSTS_STEP_BYTES"] = "65536"
    try:
        yield
    finally:
        del os.environ["CTRAN_GPU_HOSTS_STEP_BYTES"]


def spread(
    rank: Rank, hosts: tuple[int, ...], name: str, algorithm: str = "", **options: Any
) -> TorchComm:
    hints = {"ctran::host": f"host{hosts[rank.rank]}"}
    if algorithm:
        hints["ctran::algorithm"] = algorithm
    with small_steps():
        return rank.new_comm(BACKEND, f"{name} {hosts} {algorithm}", hints=hints, **options)


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Sums of partial sums are rounded more than once."""
    return torch.allclose(a, b, rtol=1e-5, atol=1e-5) if a.is_floating_point() else same_bits(a, b)


def _check_call(
    rank: Rank, comm: TorchComm, operation: str, arguments: Arguments, async_op: bool
) -> None:
    call = Call(rank.rank, rank.size, arguments, BACKEND, rank.device(BACKEND))
    OPERATIONS[operation].prepare(comm, call)
    rank.synchronize(BACKEND)
    call.issue(async_op).wait()
    rank.synchronize(BACKEND)
    problems = call.problems(_close if OPERATIONS[operation].reduces else same_bits)
    assert not problems, f"{operation}, {arguments}: {problems}"


def _counts(operation: str, count: int, size: int) -> tuple[int, ...]:
    if not OPERATIONS[operation].varying:
        return (count,) * size
    return (*(count + r for r in range(size - 1)), 0)


def _operations(rank: Rank, hosts: tuple[int, ...], algorithm: str) -> None:
    comm = spread(rank, hosts, "operations", algorithm)
    for operation in OPERATIONS:
        for number, count in enumerate(COUNTS):
            for in_place in (False, True)[: 1 + OPERATIONS[operation].in_place]:
                op = "SUM" if OPERATIONS[operation].reduces else None
                counts = _counts(operation, count, rank.size)
                arguments = Arguments(
                    torch.int32, op, (number + 1) % rank.size, counts, in_place, number
                )
                _check_call(rank, comm, operation, arguments, number % 2 == 0)
    comm.barrier(async_op=True).wait()
    comm.finalize()


@case(world=4)
def every_operation_spans_hosts(make: Make) -> None:
    for hosts in SHAPES:
        for algorithm in (RAILS, HOST):
            make(len(hosts)).run(_operations, hosts, algorithm)


# One of each kind of arithmetic: the device code is compiled anew for each.
REDUCTIONS = (
    (torch.float32, "AVG"),
    (torch.float32, "PREMUL_TENSOR"),
    (torch.int64, "AVG"),
    (torch.bfloat16, "MAX"),
)


def _reductions(rank: Rank, hosts: tuple[int, ...], algorithm: str) -> None:
    comm = spread(rank, hosts, "reductions", algorithm)
    for operation in ("all_reduce", "reduce_scatter_single", "reduce"):
        for dtype, op in REDUCTIONS:
            arguments = Arguments(dtype, op, 1, (40_001,) * rank.size, False)
            _check_call(rank, comm, operation, arguments, False)
    comm.finalize()


@case(world=4)
def reductions_of_all_kinds_span_hosts(make: Make) -> None:
    for hosts in (EVEN, UNEVEN):
        for algorithm in (RAILS, HOST):
            make(len(hosts)).run(_reductions, hosts, algorithm)


def _choices(rank: Rank) -> None:
    comm = spread(rank, EVEN, "choices")
    for kind in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"):
        told = comm.explain(kind, 16 << 20, torch.float32)
        assert told.algorithm == RAILS, told
        assert "0, 1 | 2, 3" in told.why, told
    told = comm.explain("all_reduce", 16 << 20, torch.bfloat16)
    assert told.algorithm == HOST, told
    whys = {one.algorithm: one.why_not for one in told.alternatives}
    assert "few digits" in whys[RAILS], whys
    assert comm.explain("gather", 1024).algorithm == HOST
    # Ranks that have called are told of rounding, those that name it have it.
    tensor = torch.full((100,), rank.rank + 1.0, device=rank.device(BACKEND), dtype=torch.bfloat16)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False, hints={"ctran::algorithm": RAILS})
    rank.synchronize(BACKEND)
    assert (tensor.cpu() == 10).all()
    local = comm.split([0, 1] if rank.rank < 2 else [2, 3], "local")
    assert local is not None
    told = local.explain("all_reduce", 1 << 20, torch.float32)
    assert told.algorithm not in (RAILS, HOST), told
    local.finalize()
    comm.finalize()
    uneven = comm = spread(rank, (0, 0, 0, 1), "uneven choices")
    whys = {
        one.algorithm: one.why_not for one in uneven.explain("all_gather", 1 << 20).alternatives
    }
    assert "as many ranks" in whys[RAILS], whys
    assert uneven.explain("all_gather", 1 << 20).algorithm == HOST
    uneven.finalize()


@case(world=4)
def explain_says_what_spans_hosts_and_why(make: Make) -> None:
    make(4).run(_choices)


# What serves which operation.
PLANS = {
    "all_reduce.two_shot": "all_reduce",
    "all_gather.ring": "all_gather_single",
    "reduce_scatter.direct": "reduce_scatter_single",
    "all_to_all.direct": "all_to_all",
    "broadcast.binomial": "broadcast",
}


def _planned(rank: Rank, hosts: tuple[int, ...]) -> None:
    comm = spread(rank, hosts, "planned")

    def algorithm(kind: str, **more: Any) -> str:
        return comm.explain(kind, 4096, torch.float32, **more).algorithm

    for name, operation in PLANS.items():
        kind = name.partition(".")[0]
        with plan.make(name, rank.size).register(prefer=True):
            assert algorithm(kind) == f"plan:{name}"
            for number, count in enumerate(COUNTS):
                op = "SUM" if OPERATIONS[operation].reduces else None
                counts = (count,) * rank.size
                arguments = Arguments(torch.int64, op, number % rank.size, counts, False, number)
                _check_call(rank, comm, operation, arguments, number % 2 == 0)
        assert not algorithm(kind).startswith("plan:")
    # A graph keeps the plan that a hint has named.
    tensor = torch.zeros(70_001, device=rank.device(BACKEND))
    hints = {"ctran::algorithm": "all_reduce=plan:all_reduce.ring"}
    with plan.make("all_reduce.ring", rank.size).register():
        assert algorithm("all_reduce", hints=hints) == "plan:all_reduce.ring"
        assert not algorithm("all_reduce").startswith("plan:")
        replay = rank.gpu().capture(
            lambda: comm.all_reduce(tensor, ReduceOp.SUM, async_op=False, hints=hints)
        )
    for number in range(3):
        tensor.fill_(rank.rank + number)
        rank.synchronize(BACKEND)
        replay()
        rank.synchronize(BACKEND)
        assert (tensor.cpu() == sum(r + number for r in range(rank.size))).all()
    comm.finalize()


@case(world=4)
def plans_serve_gpus_of_several_hosts(make: Make) -> None:
    for hosts in (EVEN, ALONE):
        make(len(hosts)).run(_planned, hosts)


def _other_plan(rank: Rank) -> str:
    comm = spread(rank, ALONE, "other plan")
    comm.barrier(async_op=False)
    rank.synchronize(BACKEND)

    def look() -> None:
        comm.all_reduce(_ones(rank), ReduceOp.SUM, async_op=True).wait_blocking()

    if rank.rank == 0:
        with plan.make("all_reduce.ring", rank.size).register(prefer=True):
            return str(error_of(look, torchcomms.MismatchError))
    return str(error_of(look, torchcomms.MismatchError))


@case(world=3, breaks=True)
def hosts_with_other_plans_are_told(make: Make) -> None:
    for told in make(3).run(_other_plan):
        assert "plan" in told or "all_reduce" in told, told


def _captured(rank: Rank, hosts: tuple[int, ...], algorithm: str, replays: int) -> None:
    comm = spread(rank, hosts, "captured", algorithm)
    device = rank.device(BACKEND)
    size = rank.size
    count = 50_001
    tensor = torch.zeros(count, dtype=torch.int32, device=device)
    share = torch.zeros(count, dtype=torch.int32, device=device)
    gathered = torch.zeros(size * count, dtype=torch.int32, device=device)
    exchanged = torch.zeros(size * count, dtype=torch.int32, device=device)
    rooted = torch.zeros(count, dtype=torch.int32, device=device)
    neighbour = torch.zeros(count, dtype=torch.int32, device=device)

    def step() -> None:
        comm.all_gather_single(gathered, tensor, async_op=True)
        comm.all_to_all_single(exchanged, gathered, async_op=False)
        comm.reduce_scatter_single(share, gathered, ReduceOp.SUM, async_op=True)
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        comm.broadcast(rooted, size - 1, async_op=True)
        batch = comm.batch_op_create()
        batch.send(rooted, (rank.rank + 1) % size)
        batch.recv(neighbour, (rank.rank - 1) % size)
        batch.issue(async_op=False)

    replay = rank.gpu().capture(step)
    eager = torch.zeros(100, dtype=torch.int32, device=device)
    for number in range(replays):
        tensor.fill_(10 * rank.rank + number)
        rooted.fill_(100 * rank.rank + number)
        neighbour.fill_(-1)
        eager.fill_(rank.rank)
        rank.synchronize(BACKEND)
        replay()
        if number % 3 == 0:
            comm.all_reduce(eager, ReduceOp.SUM, async_op=False)
        rank.synchronize(BACKEND)
        everybody = [10 * r + number for r in range(size)]
        blocks = torch.tensor(everybody, dtype=torch.int32).repeat_interleave(count)
        assert torch.equal(gathered.cpu(), blocks)
        assert (exchanged.cpu() == everybody[rank.rank]).all()
        assert (share.cpu() == everybody[rank.rank] * size).all()
        assert (tensor.cpu() == sum(everybody)).all()
        assert (rooted.cpu() == 100 * (size - 1) + number).all()
        assert (neighbour.cpu() == 100 * (size - 1) + number).all()
        if number % 3 == 0:
            assert (eager.cpu() == sum(range(size))).all()
    # A graph may outlive its communicator, which ends with it.
    comm.finalize()
    tensor.fill_(rank.rank)
    rank.synchronize(BACKEND)
    replay()
    rank.synchronize(BACKEND)
    assert (tensor.cpu() == sum(range(size))).all()
    del replay


@case(world=4)
def graphs_that_span_hosts_are_replayed_with_other_inputs(make: Make) -> None:
    for hosts in (EVEN, ALONE, UNEVEN):
        for algorithm in (RAILS, HOST):
            make(len(hosts)).run(_captured, hosts, algorithm, 7)


def _ordered(rank: Rank) -> None:
    """On several streams, in the order of the calls; tensors are let go of at once."""
    comm = spread(rank, EVEN, "ordered")
    device = rank.device(BACKEND)
    tensor = torch.full((1000,), rank.rank + 1, dtype=torch.int64, device=device)
    for _ in range(10):
        with rank.gpu().side_stream():
            comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
            comm.all_reduce(tensor, ReduceOp.MIN, async_op=True).wait()
            comm.barrier(async_op=True).wait()
        whole = torch.zeros(rank.size << 12, dtype=torch.int64, device=device)
        own = torch.full((1 << 12,), rank.rank, dtype=torch.int64, device=device)
        work = comm.all_gather_single(whole, own, async_op=True)
        del own
        work.wait()
        rank.synchronize(BACKEND)
        assert torch.equal(whole.cpu(), torch.arange(rank.size).repeat_interleave(1 << 12))
    assert (tensor.cpu() == 10 * 4**9).all()
    comm.finalize()


@case(world=4)
def operations_that_span_hosts_keep_their_order(make: Make) -> None:
    make(4).run(_ordered)


def _rows(rank: Rank) -> None:
    from gpu_ranks.rows import Exchange

    comm = spread(rank, EVEN, "rows")
    rows = Exchange(rank, BACKEND, 100, 8, torch.float32)
    rows.fill(4, learns=True)
    rank.synchronize(BACKEND)
    comm.all_to_all_v_dynamic(rows.output, rows.input, rows.receives, rows.sends, True).wait()
    rank.synchronize(BACKEND)
    rows.check()
    comm.finalize()


@case(world=4)
def rows_whose_numbers_are_on_the_gpu_span_hosts(make: Make) -> None:
    make(4).run(_rows)


# What goes wrong.


def _ones(rank: Rank, count: int = 1000) -> torch.Tensor:
    return torch.ones(count, dtype=torch.int32, device=rank.device(BACKEND))


def _is_late(rank: Rank, hosts: tuple[int, ...], absent: int, algorithm: str) -> Any:
    comm = spread(rank, hosts, "late", algorithm)
    comm.barrier(async_op=False)
    rank.synchronize(BACKEND)
    if rank.rank == absent:
        until(comm.is_aborted, "the others give up")
        error = error_of(lambda: comm.all_reduce(_ones(rank), ReduceOp.SUM, async_op=False))
    else:
        work = comm.all_reduce(_ones(rank), ReduceOp.SUM, async_op=True, timeout=SOON)
        error = error_of(work.wait_blocking, torchcomms.CommTimeoutError)
    rank.synchronize(BACKEND)  # the stream is free again
    return error.ranks, str(error)


@case(world=4, breaks=True)
def a_late_rank_of_any_host_is_named_on_all(make: Make) -> None:
    for hosts, absent in ((EVEN, 3), (ALONE, 1)):
        for algorithm in (RAILS, HOST):
            for ranks, told in make(len(hosts)).run(_is_late, hosts, absent, algorithm):
                assert ranks == [absent], f"{algorithm}, {absent} is late: {told}"


def _dies(rank: Rank, hosts: tuple[int, ...], dead: int) -> Any:
    comm = spread(rank, hosts, "dies", timeout=timedelta(seconds=60))
    comm.barrier(async_op=False)
    rank.synchronize(BACKEND)
    if rank.rank == dead:
        os.kill(os.getpid(), signal.SIGKILL)
    tensor = _ones(rank)

    def reduce() -> None:  # the call itself fails where the death is known by then
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait_blocking()

    error = error_of(reduce, torchcomms.PeerLostError)
    rank.synchronize(BACKEND)
    return error.ranks


@case(world=4, breaks=True)
def a_dead_rank_of_any_host_is_named_on_all(make: Make) -> None:
    for hosts, dead in ((EVEN, 3), (ALONE, 2), (UNEVEN, 1)):
        expected: list[Any] = [Returned([dead])] * len(hosts)
        expected[dead] = Died(-signal.SIGKILL)
        outcomes = make(len(hosts)).start(_dies, hosts, dead).outcomes()
        assert outcomes == expected, f"{hosts}: {outcomes}"


def _dies_in_a_replay(rank: Rank) -> Any:
    comm = spread(rank, EVEN, "dies in a replay", timeout=timedelta(seconds=60))
    tensor = _ones(rank)
    replay = rank.gpu().capture(lambda: comm.all_reduce(tensor, ReduceOp.SUM, async_op=False))
    for _ in range(3):
        replay()
    rank.synchronize(BACKEND)
    if rank.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    replay()
    rank.synchronize(BACKEND)
    until(comm.is_aborted, "the death is noticed")
    error = error_of(lambda: comm.barrier(async_op=False), torchcomms.PeerLostError)
    return error.ranks


@case(world=4, breaks=True)
def a_death_ends_replays_on_all_hosts(make: Make) -> None:
    outcomes = make(4).start(_dies_in_a_replay).outcomes()
    expected = [Returned([2]), Returned([2]), Died(-signal.SIGKILL), Returned([2])]
    assert outcomes == expected, outcomes


def _late_in_a_replay(rank: Rank) -> Any:
    comm = spread(rank, ALONE, "late in a replay", timeout=SOON)
    tensor = _ones(rank)
    replay = rank.gpu().capture(lambda: comm.all_reduce(tensor, ReduceOp.SUM, async_op=False))
    if rank.rank != 1:
        replay()
    rank.synchronize(BACKEND)
    until(comm.is_aborted, "the replay is given up")
    error = error_of(lambda: comm.barrier(async_op=False), torchcomms.CommTimeoutError)
    return error.ranks


@case(world=3, breaks=True)
def a_replay_that_waits_for_another_host_ends(make: Make) -> None:
    assert make(3).run(_late_in_a_replay) == [[1]] * 3


def _aborts(rank: Rank, hosts: tuple[int, ...], count: int) -> Any:
    comm = spread(rank, hosts, "aborts")
    comm.barrier(async_op=False)
    rank.synchronize(BACKEND)
    if rank.rank == rank.size - 1:
        rank.listen()  # until the others wait
        comm.abort()
        error = error_of(lambda: comm.barrier(async_op=False), torchcomms.AbortedError)
        return error.ranks
    work = comm.all_reduce(_ones(rank, count), ReduceOp.SUM, async_op=True)
    rank.say("waiting")
    error = error_of(work.wait_blocking, torchcomms.AbortedError)
    rank.synchronize(BACKEND)
    return error.ranks


@case(world=4, breaks=True)
def an_abort_ends_the_ranks_of_all_hosts(make: Make) -> None:
    for hosts in (EVEN, ALONE):
        for count in (1000, 200_000):
            last = len(hosts) - 1
            job = make(len(hosts)).start(_aborts, hosts, count)
            for r in range(last):
                assert job.hear(r) == "waiting"
            job.say(last)
            assert job.results() == [[last]] * len(hosts)


def _disagrees(rank: Rank, hosts: tuple[int, ...], other: str) -> str:
    comm = spread(rank, hosts, "disagrees")
    comm.barrier(async_op=False)
    rank.synchronize(BACKEND)
    device = rank.device(BACKEND)

    def look() -> None:
        if hosts[rank.rank] == hosts[-1]:
            count = 2000 if other == "count" else 1000
            if other == "gather":
                outputs = [_ones(rank) for _ in range(rank.size)] if rank.rank == 0 else []
                work = comm.gather(outputs, _ones(rank), 0, async_op=True)
            else:
                tensor = torch.ones(count, dtype=torch.int32, device=device)
                work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=True)
        else:
            work = comm.all_reduce(_ones(rank), ReduceOp.SUM, async_op=True)
        work.wait_blocking()
        for _ in range(100):
            comm.barrier(async_op=False).wait_blocking()

    return str(error_of(look, torchcomms.MismatchError))


@case(world=4, breaks=True)
def hosts_that_disagree_are_told(make: Make) -> None:
    for hosts in (EVEN, ALONE):
        for other in ("gather", "count"):
            for told in make(len(hosts)).run(_disagrees, hosts, other):
                assert "rank" in told, told


def _leaves(rank: Rank) -> Any:
    comm = spread(rank, ALONE, "left", timeout=timedelta(seconds=60))
    comm.barrier(async_op=False)
    rank.synchronize(BACKEND)
    if rank.rank == 1:
        comm.finalize()
        rank.listen()  # until the others have noticed
        return None
    rank.listen()

    def look() -> None:  # The call itself fails where the other rank has said so already.
        comm.all_reduce(_ones(rank), ReduceOp.SUM, async_op=True).wait_blocking()

    error = error_of(look, torchcomms.PeerLostError)
    rank.synchronize(BACKEND)
    rank.say("noticed")
    return error.ranks


@case(world=3, breaks=True)
def a_rank_of_another_host_that_has_left_is_named(make: Make) -> None:
    job = make(3).start(_leaves)
    for r in (0, 2):
        job.say(r)
    for r in (0, 2):
        assert job.hear(r) == "noticed"
    job.say(1)
    assert job.results() == [[1], None, [1]]


def _refuses(rank: Rank) -> None:
    comm = spread(rank, EVEN, "refuses")
    tensor = _ones(rank)
    told = str(error_of(lambda: comm.new_window(tensor)))
    assert "cannot be windows" in told, told
    told = str(error_of(lambda: comm.all_reduce(tensor.float(), ReduceOp.BAND, async_op=False)))
    assert "band" in told, told
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)  # nothing is broken
    rank.synchronize(BACKEND)
    assert (tensor.cpu() == rank.size).all()
    comm.finalize()


@case(world=4)
def what_hosts_refuse_breaks_nothing(make: Make) -> None:
    make(4).run(_refuses)
