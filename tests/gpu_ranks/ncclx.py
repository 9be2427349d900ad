"""Backend ncclx: each call by the member that is the faster, in one order, with one fate."""

from __future__ import annotations

import os
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from harness import Rank
from harness.failing import error_of
from harness.operations import OPERATIONS, Arguments, Call

import torchcomms
from gpu_ranks import Make, case
from torchcomms import ReduceOp, WorkStatus

BACKEND = "ncclx"
SOON = timedelta(seconds=1)
SMALL, LARGE = 1000, 300_000
# As comm.tune() keeps it: small calls are ctran's, large ones the library's.
CROSSING = [
    {"collective": op, "bytes": nbytes, "us": {"ctran": nbytes / 100, "vendor": 100.0}}
    for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
    for nbytes in (1000, 100_000_000)
]


def _made(rank: Rank, name: str, **options: Any) -> torchcomms.TorchComm:
    """A communicator that goes by CROSSING."""
    from torchcomms.select import _call

    comm = rank.new_comm(BACKEND, name, **options)
    _call("use", measured=CROSSING, save=False, communicator=name, token=comm._engine_token)
    return comm


def _ones(rank: Rank, count: int) -> torch.Tensor:
    return torch.full((count,), float(rank.rank + 1), device=rank.device(BACKEND))


def _check(rank: Rank, tensor: torch.Tensor, expected: float) -> None:
    rank.synchronize(BACKEND)
    found = tensor.cpu()
    assert (found == expected).all(), f"{found[0]} instead of {expected}"


def by_ctran(comm: torchcomms.TorchComm, collective: str, size: int) -> bool:
    told = comm.explain(collective, size)
    return told.why.startswith("ctran: ") and told.algorithm != "nccl"


def _chooses(rank: Rank) -> None:
    hints = {"torchcomm::ncclx::high_priority_stream": "true"}
    comm = rank.new_comm(BACKEND, "chooses", hints=hints)
    assert comm.get_backend() == "ncclx"
    assert comm.get_backend_version().startswith("2.")
    # As measured on H200.
    small = comm.explain("all_reduce", 8192)
    assert small.why.startswith("ctran: the faster of the two, measured among "), small.why
    assert "H200" in small.why
    measured = [one.algorithm for one in small.alternatives if one.measured_us is not None]
    assert measured == [small.algorithm, "nccl"], small
    assert by_ctran(comm, "gather", 8192)
    by_hint = rank.new_comm(BACKEND, "hinted", hints={"ncclx::member": "nccl"})
    told = by_hint.explain("all_reduce", 8192)
    assert (told.algorithm, told.why) == ("nccl", "the hint ncclx::member")
    for one in (comm, by_hint):
        tensor = _ones(rank, SMALL)
        one.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait()
        _check(rank, tensor, 3)
        one.finalize()
    wrong = str(error_of(lambda: rank.new_comm(BACKEND, "no", hints={"ncclx::member": "gloo"})))
    assert "it can be ctran or nccl" in wrong, wrong


@case(world=2, apart=True)
def ncclx_chooses_by_what_was_measured(make: Make) -> None:
    make(2).run(_chooses)


def _asks_for_ctran(rank: Rank) -> None:
    """What ctran alone can do is not lost where NCCL would serve."""
    values = [-1e8, 1.0] if rank.size == 2 else [0.0] * rank.size
    large = 64 << 20

    def told(comm: torchcomms.TorchComm, hints: dict[str, str] | None = None) -> str:
        return comm.explain("all_reduce", large, hints=hints).why

    asked = "ctran: a hint of ctran's asks for it"
    comm = rank.new_comm(BACKEND, "asks", hints={"ncclx::member": "nccl"})
    assert told(comm) == "the hint ncclx::member"
    assert told(comm, {"ctran::deterministic": "rank_order"}).startswith(asked)
    assert told(comm, {"ctran::algorithm": "all_gather=copy_engine"}) == "the hint ncclx::member"
    tensor = torch.full((large // 4,), values[rank.rank], device=rank.device(BACKEND))
    comm.all_reduce(tensor, ReduceOp.SUM, False, hints={"ctran::deterministic": "rank_order"})
    _check(rank, tensor, sum(values))
    impossible = error_of(
        lambda: comm.all_reduce(tensor, ReduceOp.SUM, False, hints={"ctran::algorithm": "ring"})
    )
    assert "ring" in str(impossible), impossible
    comm.set_hints({"ctran::deterministic": "rank_order"})
    assert told(comm).startswith(asked)
    comm.set_hints({})
    assert "the faster of the two" in told(comm)
    comm.prepare("all_reduce", 1024, torch.float32)
    comm.finalize()
    both = {"ncclx::member": "nccl", "ctran::deterministic": "rank_order"}
    wrong = str(error_of(lambda: rank.new_comm(BACKEND, "both", hints=both)))
    assert "knows nothing of the hint ctran::deterministic" in wrong, wrong


@case(world=2, apart=True)
def ncclx_leaves_hints_of_ctran_to_it(make: Make) -> None:
    make(2).run(_asks_for_ctran)


def _everything(rank: Rank) -> None:
    comm = _made(rank, "everything")
    for operation in OPERATIONS:
        op = "SUM" if OPERATIONS[operation].reduces else None
        for count in (SMALL, LARGE):
            arguments = Arguments(torch.float32, op, 0, (count,) * rank.size, False)
            call = Call(rank.rank, rank.size, arguments, BACKEND, rank.device(BACKEND))
            OPERATIONS[operation].prepare(comm, call)
            work = call.issue(count == LARGE)
            work.wait()
            rank.synchronize(BACKEND)
            problems = call.problems(torch.equal)
            assert not problems, f"{operation}: {problems}"
    comm.finalize()


@case(world=2, apart=True)
def ncclx_has_every_operation(make: Make) -> None:
    make(2).run(_everything)


def _ordered(rank: Rank) -> None:
    """Calls of both members on several streams, each on what the one before has made."""
    comm = _made(rank, "ordered")
    assert by_ctran(comm, "all_reduce", SMALL * 4)
    assert comm.explain("all_reduce", LARGE * 4).algorithm == "nccl"
    whole = _ones(rank, LARGE)
    part = whole[:SMALL]
    for turn in range(20):
        comm.all_reduce(whole, ReduceOp.SUM, async_op=True).wait()
        comm.all_reduce(part, ReduceOp.AVG, async_op=turn % 2 == 0).wait()
        with rank.gpu().side_stream():
            comm.all_reduce(part, ReduceOp.MAX, async_op=False)
            comm.all_reduce(whole, ReduceOp.AVG, async_op=False)
        if turn == 0:
            _check(rank, whole, 3)
    _check(rank, whole, 3 * 2**19)
    parts = comm.split([1, 0], "turned")
    assert parts is not None
    for count in (SMALL, LARGE):
        tensor = _ones(rank, count)
        parts.broadcast(tensor, 0, async_op=False)
        _check(rank, tensor, 2)
    parts.finalize()
    comm.finalize()


@case(world=2, apart=True)
def ncclx_keeps_the_order_of_its_members(make: Make) -> None:
    make(2).run(_ordered)


def _captured(rank: Rank) -> None:
    comm = _made(rank, "captured")
    small, large = _ones(rank, SMALL), _ones(rank, LARGE)
    for tensor in (small, large):
        comm.all_reduce(tensor, ReduceOp.MAX, async_op=False)
    rank.synchronize(BACKEND)

    def step() -> None:
        comm.all_reduce(small, ReduceOp.SUM, async_op=True)
        comm.all_reduce(large, ReduceOp.SUM, async_op=True).wait()
        comm.all_reduce(small, ReduceOp.MAX, async_op=False)

    replay = rank.gpu().capture(step)
    for number in range(10):
        small.fill_(float(number + rank.rank))
        large.fill_(float(number))
        rank.synchronize(BACKEND)
        replay()
        rank.synchronize(BACKEND)
        _check(rank, small, 2 * number + 1)
        _check(rank, large, 2 * number)
    eager = _ones(rank, SMALL)
    comm.all_reduce(eager, ReduceOp.SUM, async_op=False)
    _check(rank, eager, 3)
    comm.finalize()


@case(world=2, apart=True)
def ncclx_is_captured(make: Make) -> None:
    make(2).run(_captured)


def _tuned(rank: Rank, directory: str) -> None:
    os.environ["CTRAN_TUNING_DIR"] = directory
    comm = rank.new_comm(BACKEND, "tuned")
    said: list[float] = []
    path = comm.tune(0.01, lambda done, _: said.append(done))
    assert Path(path).parent == Path(directory), path
    assert said[-1] == 1.0
    told = comm.explain("all_reduce", 1024)
    assert "the faster of the two, measured here" in told.why, told.why
    measured = [one.measured_us for one in told.alternatives]
    comm.barrier(async_op=False).wait_blocking()  # rank 0 has written it
    rank.synchronize(BACKEND)
    comm.finalize()
    if rank.rank == 0:
        assert path.exists()
    again = rank.new_comm(BACKEND, "again")
    told = again.explain("all_reduce", 1024)
    assert "the faster of the two, measured on machines like this" in told.why, told.why
    assert [one.measured_us for one in told.alternatives] == measured
    tensor = _ones(rank, SMALL)
    again.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    _check(rank, tensor, 3)
    again.finalize()
    del os.environ["CTRAN_TUNING_DIR"]


@case(world=2, apart=True)
def ncclx_is_tuned(make: Make) -> None:
    with tempfile.TemporaryDirectory() as directory:
        make(2).run(_tuned, directory)


def _late(rank: Rank, count: int) -> Any:
    """What happens to one member happens to the other."""
    comm = _made(rank, "late")
    # A first call may wait for connections, in the call itself.
    comm.all_reduce(_ones(rank, count), ReduceOp.SUM, async_op=False)
    rank.synchronize(BACKEND)
    if rank.rank == 1:
        rank.listen()  # until the other has given up
        error = error_of(lambda: comm.all_reduce(_ones(rank, SMALL), ReduceOp.SUM, True).wait())
        return error.ranks
    work = comm.all_reduce(_ones(rank, count), ReduceOp.SUM, async_op=True, timeout=SOON)
    error = error_of(work.wait_blocking, torchcomms.CommTimeoutError)
    assert work.status == WorkStatus.TIMEDOUT
    assert comm.is_aborted()
    rank.synchronize(BACKEND)  # the stream is free again
    for other in (SMALL, LARGE):
        again = error_of(
            lambda other=other: comm.all_reduce(_ones(rank, other), ReduceOp.SUM, False),
            torchcomms.CommTimeoutError,
        )
        assert again.ranks == error.ranks
    rank.say("gave up")
    return error.ranks


@case(world=2, breaks=True, apart=True)
def ncclx_breaks_as_one(make: Make) -> None:
    for count in (SMALL, LARGE):
        job = make(2).start(_late, count)
        assert job.hear(0) == "gave up"
        job.say(1)
        assert job.results() == [[1], [1]], count


def _aborted(rank: Rank) -> Any:
    comm = _made(rank, "aborted")
    comm.barrier(async_op=False)
    rank.synchronize(BACKEND)
    if rank.rank == 1:
        rank.listen()
        comm.abort()
        return error_of(lambda: comm.barrier(async_op=False), torchcomms.AbortedError).ranks
    work = comm.all_reduce(_ones(rank, SMALL), ReduceOp.SUM, async_op=True)
    rank.say("waiting")
    error = error_of(work.wait_blocking, torchcomms.AbortedError)
    rank.synchronize(BACKEND)
    large = error_of(lambda: comm.all_reduce(_ones(rank, LARGE), ReduceOp.SUM, False))
    assert isinstance(large, torchcomms.AbortedError)
    return error.ranks


@case(world=2, breaks=True, apart=True)
def ncclx_is_aborted(make: Make) -> None:
    job = make(2).start(_aborted)
    job.hear(0)
    job.say(1)
    assert job.results() == [[1], [1]]


def _without(rank: Rank, variable: str, where: int) -> tuple[str, str]:
    """A rank that has no such library."""
    rank.device(BACKEND)  # sets what the stand-ins need
    if rank.rank == where:
        os.environ[variable] = "/nowhere.so"
    comm = rank.new_comm(BACKEND, "without")
    for count in (SMALL, LARGE):
        tensor = _ones(rank, count)
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait()
        _check(rank, tensor, 3)
        comm.send(tensor, 1 - rank.rank, async_op=False) if rank.rank else comm.recv(
            tensor, 1, async_op=False
        )
    told = comm.explain("all_reduce", 1 << 30)
    only = str(error_of(lambda: comm.tune(1.0)))
    assert "nothing to choose from" in only, only
    comm.finalize()
    return told.algorithm, told.why


@case(world=2, breaks=True, apart=True)
def ncclx_goes_without_nccl(make: Make) -> None:
    told = make(2).run(_without, "TORCHCOMMS_NCCL_LIBRARY", 1)
    assert all(why.startswith("ctran: ") and algorithm != "nccl" for algorithm, why in told), told
    assert "another rank has none" in told[0][1]
    assert "nowhere.so" in told[1][1]


@case(world=2, breaks=True, apart=True)
def ncclx_goes_without_ctran(make: Make) -> None:
    for algorithm, why in make(2).run(_without, "CTRAN_NVRTC_LIBRARY", 0):
        assert algorithm == "nccl"
        assert "the GPU of rank 0" in why, why


def _sharing(rank: Rank) -> None:
    """All ranks on the first GPU."""
    device = rank.device(BACKEND)
    if rank.gpu().is_real:
        device = torch.device("cuda", 0)
    else:
        os.environ["STAND_IN_GPU"] = "0"
    options = torchcomms.CommOptions()
    options.rank, options.size = rank.rank, rank.size
    options.abort_process_on_timeout_or_error = False

    def made(backend: str) -> torchcomms.TorchComm:
        store = rank.store(f"sharing {backend}")
        return torchcomms.new_comm(backend, device, "sharing", options=options, store=store)

    comm = made(BACKEND)
    told = comm.explain("all_reduce", 1 << 30)
    assert told.why.startswith("ctran: "), told
    assert "ranks 0 and 1 share a GPU" in told.why, told
    part = comm.split([0, 1], "sharing too")
    assert part is not None
    for one in (comm, part):
        for count in (SMALL, LARGE):
            tensor = torch.full((count,), float(rank.rank + 1), device=device)
            one.all_reduce(tensor, ReduceOp.SUM, async_op=count == LARGE).wait()
            _check(rank, tensor, 3)
        one.finalize()
    error_of(lambda: made("nccl"), torchcomms.CommError)


@case(world=2, breaks=True)
def ncclx_goes_without_nccl_where_ranks_share_a_gpu(make: Make) -> None:
    make(2).run(_sharing)
