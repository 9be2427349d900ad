"""Through the host's memory, where GPUs do not reach each other's."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch
from harness import Rank
from harness.failing import error_of
from harness.operations import OPERATIONS, Arguments, Call

from gpu_ranks import BACKEND, Make, case
from gpu_ranks.quantized import near_and_repeat
from gpu_ranks.rows import Exchange
from torchcomms import ReduceOp, TorchComm

COUNTS = (1, 1000, 40_000, 300_001)
HOW = "through the host's memory"


def _operations(rank: Rank, comm: TorchComm, backend: str, count: int) -> None:
    for operation in OPERATIONS:
        op = "SUM" if OPERATIONS[operation].reduces else None
        arguments = Arguments(torch.float32, op, 0, (count,) * rank.size, False)
        call = Call(rank.rank, rank.size, arguments, backend, rank.device(backend))
        OPERATIONS[operation].prepare(comm, call)
        rank.synchronize(backend)
        call.issue(count % 2 == 0).wait()
        rank.synchronize(backend)
        problems = call.problems(torch.equal)
        assert not problems, f"{operation} of {count}: {problems}"


def _forced(rank: Rank) -> None:
    device = rank.device(BACKEND)
    if rank.rank == 0:  # one is enough
        os.environ["CTRAN_GPU_THROUGH_HOST"] = "1"
    comm = rank.new_comm(BACKEND, "through the host")
    told = comm.explain("all_gather", 1 << 20)
    assert told.algorithm == "direct", told
    engines = {"ctran::algorithm": "copy_engine"}
    refused = error_of(lambda: comm.explain("all_gather", 1 << 20, hints=engines), ValueError)
    assert "'copy_engine' of all_gather" in str(refused)
    assert HOW in str(refused)
    assert HOW in told.why, told
    for count in COUNTS:
        _operations(rank, comm, BACKEND, count)
    rows = Exchange(rank, BACKEND, 1000, 40, torch.bfloat16)
    rows.fill(4, learns=True)
    rank.synchronize(BACKEND)
    comm.all_to_all_v_dynamic(rows.output, rows.input, rows.receives, rows.sends, True).wait()
    rank.synchronize(BACKEND)
    rows.check()
    near_and_repeat(rank, comm, BACKEND, 12_345)
    comm.barrier(async_op=False)

    tensor = torch.zeros(50_000, device=device)
    replay = rank.gpu().capture(lambda: comm.all_reduce(tensor, ReduceOp.SUM, async_op=True))
    for number in range(10):
        tensor.fill_(float(number + rank.rank))
        rank.synchronize(BACKEND)
        replay()
        rank.synchronize(BACKEND)
        assert (tensor.cpu() == 2 * number + 1).all()
    half = comm.split([0, 1], "through the host, two")
    assert half is not None
    assert HOW in half.explain("all_reduce", 8).why
    _operations(rank, half, BACKEND, 1000)
    half.finalize()
    comm.finalize()
    os.environ.pop("CTRAN_GPU_THROUGH_HOST", None)


def _left_to_nccl(rank: Rank) -> None:
    """NCCL knows better ways."""
    rank.device(BACKEND)  # sets what the stand-ins need
    if rank.rank == 0:
        os.environ["CTRAN_GPU_THROUGH_HOST"] = "1"
    other = rank.new_comm("ncclx", "not through the host")
    told = other.explain("all_reduce", 8)
    assert told.algorithm == "nccl", told
    assert "CTRAN_GPU_THROUGH_HOST" in told.why, told
    _operations(rank, other, "ncclx", 1000)
    other.finalize()
    os.environ.pop("CTRAN_GPU_THROUGH_HOST", None)


@case(world=2, breaks=True)
def every_operation_goes_through_the_host(make: Make) -> None:
    make(2).run(_forced)


@case(world=2, breaks=True, apart=True)
def ncclx_has_nccl_go_where_ctran_would_go_through_the_host(make: Make) -> None:
    make(2).run(_left_to_nccl)


def _unreachable(rank: Rank, peers: str, **options: Any) -> None:
    if rank.gpu().is_real:
        return  # there they are reached
    os.environ["STAND_IN_PEERS"] = peers
    comm = rank.new_comm(BACKEND, f"through the host of {peers}", **options)
    del os.environ["STAND_IN_PEERS"]
    assert HOW in comm.explain("all_reduce", 8).why
    for count in (1000, 300_001):
        _operations(rank, comm, BACKEND, count)
    comm.finalize()


@case(world=2, breaks=True)
def gpus_that_are_refused_to_each_other_go_through_the_host(make: Make) -> None:
    make(2).run(_unreachable, "refused")


def _lost(rank: Rank) -> None:
    _unreachable(rank, "lost", timeout=timedelta(seconds=5))


@case(world=2, breaks=True)
def gpus_whose_writes_are_lost_go_through_the_host(make: Make) -> None:
    make(2).run(_lost)
