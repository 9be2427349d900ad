"""Backend xccl, on stand-ins of a device and of the ProcessGroupXCCL of a torch for Intel's GPUs.

The operations give what plain torch gives, in the order of streams.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable

import pytest
import torch
from harness import Rank, Ranks
from harness.devices import XCCL, BusyDevice
from harness.matrix import Case, check, pairwise, run_cases

import torchcomms
from torchcomms import ReduceOp, WorkStatus

pytestmark = pytest.mark.skipif(
    not torchcomms.is_backend_built("xccl"), reason="built without USE_XCCL=1"
)
MakeRanks = Callable[[int], Ranks]
WORLDS = (1, 2, 3)
BATCH = 32
PATIENCE = 60.0  # seconds, far above what it takes


def _batches() -> list[list[Case]]:
    cases = [case for case in pairwise(XCCL) if case.world in WORLDS]
    return [
        some[at : at + BATCH]
        for world in WORLDS
        for some in [[case for case in cases if case.world == world]]
        for at in range(0, len(some), BATCH)
    ]


@pytest.mark.parametrize("cases", _batches(), ids=lambda cases: f"{len(cases)}-x{cases[0].world}")
def test_pairs(ranks: MakeRanks, cases: list[Case]) -> None:
    of_ranks = ranks(cases[0].world).run(run_cases, cases)
    for case, *reports in zip(cases, *of_ranks, strict=True):
        check(case, reports)


def _on_streams(rank: Rank) -> None:
    """Calls return while the device is busy; a work has ended when the device has come to it."""
    comm, device = rank.comm(XCCL), rank.device(XCCL)
    total = float(sum(range(1, rank.size + 1)))
    tensor = torch.full((1000,), rank.rank + 1.0).to(device)
    busy = BusyDevice()
    work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=True)
    ended = threading.Event()
    work.add_done_callback(lambda _: ended.set())
    work.wait()
    assert work.status == WorkStatus.INPROGRESS
    comm.barrier(async_op=False)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    assert not ended.is_set()
    busy.release()
    assert ended.wait(PATIENCE)
    assert work.status == WorkStatus.COMPLETED
    assert torch.equal(tensor.cpu(), torch.full((1000,), total * rank.size))


def test_calls_are_work_on_streams(ranks: MakeRanks) -> None:
    ranks(2).run(_on_streams)


def _parts(rank: Rank) -> None:
    comm = rank.new_comm(XCCL, "whole")
    assert comm.get_device() == rank.device(XCCL)
    part = comm.split([2, 0] if rank.rank != 1 else [], "part")
    if part is not None:
        tensor = torch.full((3,), float(rank.rank), device=rank.device(XCCL))
        part.broadcast(tensor, 0, async_op=False)
        assert tensor.cpu().tolist() == [2.0] * 3
        part.finalize()
    # What is under way when it goes has its results nevertheless.
    tensor = torch.ones(1000, device=rank.device(XCCL))
    work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=True)
    comm.finalize()
    assert work.is_completed()
    assert tensor.cpu().tolist() == [3.0] * 1000
    with pytest.raises(torchcomms.CommError, match=r"finalized"):
        comm.barrier(async_op=False)


def test_parts_and_ends(ranks: MakeRanks) -> None:
    ranks(3).run(_parts)


def _in_vain(rank: Rank) -> None:
    comm, device = rank.new_comm(XCCL, "in-vain"), rank.device(XCCL)
    tensor = torch.zeros(3, device=device)
    if rank.rank == 0:
        work = comm.recv(tensor, 1, async_op=True)
        assert not work.is_completed()
        comm.set_timeout(datetime.timedelta(milliseconds=100))
        with pytest.raises(torchcomms.CommTimeoutError, match=r"finalize .* timed out"):
            comm.finalize()
        rank.say("has waited")
    else:
        rank.listen()
        comm.send(torch.ones(3, device=device), 0, async_op=False)


def test_finalize_waits_no_longer_than_the_timeout(fresh_ranks: MakeRanks) -> None:
    job = fresh_ranks(2).start(_in_vain)
    assert job.hear(0) == "has waited"
    job.say(1)
    job.results()


def _refusal(rank: Rank, device: str) -> str:
    with pytest.raises(torchcomms.CommError) as raised:
        torchcomms.new_comm("xccl", torch.device(device))
    return str(raised.value)


def _refusal_of_the_cpu(rank: Rank) -> str:
    rank.device(XCCL)
    return _refusal(rank, "cpu")


@pytest.mark.skipif(torch.distributed.is_xccl_available(), reason="this torch is for Intel's GPUs")
def test_torch_for_other_gpus(fresh_ranks: MakeRanks) -> None:
    (text,) = fresh_ranks(1).run(_refusal, "xpu")
    assert f"ProcessGroupXCCL, which torch {torch.__version__} does not have" in text
    assert "whl/xpu" in text


def test_tensors_of_the_cpu_are_for_others(ranks: MakeRanks) -> None:
    (text,) = ranks(1).run(_refusal_of_the_cpu)
    assert "no support for device 'cpu'" in text
    assert "'xpu'" in text
