"""Backend gloo on tensors of a device: a GPU where there is one, else a stand-in that torch takes.

The operations give what plain torch gives; what has ended has its results on the device.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness import Rank, Ranks
from harness.devices import GLOO_STAGED, BusyDevice, has_gpu, most_ranks
from harness.failing import until_blocked
from harness.matrix import Case, check, pairwise, run_cases

import torchcomms

pytestmark = pytest.mark.skipif(
    not torchcomms.is_backend_built("gloo"), reason="built with USE_GLOO=0"
)
MakeRanks = Callable[[int], Ranks]
WORLDS = (1, 2, 3)
BATCH = 32
PATIENCE = 60.0  # seconds, far above what it takes


def _batches() -> list[list[Case]]:
    cases = [case for case in pairwise(GLOO_STAGED) if case.world in WORLDS]
    if has_gpu():
        cases = [case for case in cases if case.world <= most_ranks()]
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


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _ends_on_the_device(rank: Rank) -> None:
    comm = rank.comm(GLOO_STAGED)
    device = rank.device(GLOO_STAGED)
    if rank.rank == 0:
        comm.send(torch.arange(1000.0).to(device), 1, async_op=False)
        comm.barrier(async_op=False)
        return
    tensor = torch.zeros(1000, device=device)
    ended = threading.Event()
    busy = BusyDevice()
    work = comm.recv(tensor, 0, async_op=True)
    work.add_done_callback(lambda _: ended.set())
    comm.barrier(async_op=False)  # what was sent has come
    assert not work.is_completed()
    assert not ended.is_set()
    busy.release()
    assert ended.wait(PATIENCE)
    assert work.is_completed()
    assert work.status == torchcomms.WorkStatus.COMPLETED
    assert torch.equal(tensor.cpu(), torch.arange(1000.0))  # nobody has waited


def _is_dropped(rank: Rank) -> None:
    comm = rank.comm(GLOO_STAGED)
    device = rank.device(GLOO_STAGED)
    tensor = torch.full((1000,), rank.rank + 1.0, device=device)
    comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=True)
    _until(lambda: torch.equal(tensor.cpu(), torch.full((1000,), 3.0)))


def _waits(rank: Rank) -> None:
    """A wait orders the current stream behind the result; wait_blocking waits for it."""
    comm = rank.comm(GLOO_STAGED)
    device = rank.device(GLOO_STAGED)
    for blocking in (False, True):
        tensor = torch.full((100_000,), rank.rank + 1.0, device=device)
        work = comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=True)
        (work.wait_blocking if blocking else work.wait)()
        assert work.is_completed() or not blocking
        tensor.mul_(2)
        assert torch.equal(tensor.cpu(), torch.full((100_000,), 6.0))


def _asks_for_futures(rank: Rank) -> list[list[float]]:
    wrapper: Any = torchcomms._comms._BackendWrapper(rank.comm(GLOO_STAGED))
    mine = torch.full((9,), rank.rank + 1.0).to(rank.device(GLOO_STAGED))
    if rank.rank == 1:
        rank.listen()
    options = dist.AllreduceOptions()
    options.asyncOp = True
    work = wrapper.allreduce([mine], options)
    futures: list[Any] = []
    threads = [threading.Thread(target=lambda: futures.append(work.get_future())) for _ in range(2)]
    for thread in threads:
        thread.start()
    if rank.rank == 0:
        rank.say("calling")
    for thread in threads:
        thread.join()
    return [future.value()[0].tolist() for future in futures]


@pytest.mark.skipif(has_gpu(), reason="only the stand-in can be kept busy")
def test_a_work_ends_when_its_result_is_on_the_device(ranks: MakeRanks) -> None:
    ranks(2).run(_ends_on_the_device)


def test_results_of_dropped_works_arrive(ranks: MakeRanks) -> None:
    ranks(2).run(_is_dropped)


def test_waits(ranks: MakeRanks) -> None:
    ranks(2).run(_waits)


def test_threads_that_ask_for_one_future_wait_together(ranks: MakeRanks) -> None:
    job = ranks(2).start(_asks_for_futures)
    until_blocked(job, 0)
    job.say(1)
    assert job.results() == [[[3.0] * 9] * 2] * 2
