"""GPUDirect RDMA between GPUs of several hosts, on the stand-ins for driver, compiler and verbs."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import gpu_ranks.hosts as hosts_cases
import pytest
import torch
from gpu_ranks import BACKEND
from gpu_ranks.hosts import ALONE, EVEN, MIXED, RAILS, UNEVEN, spread
from harness import Died, Rank, Ranks, Returned, standins
from harness.devices import has_gpu
from harness.failing import error_of, until
from harness.operations import OPERATIONS, Arguments
from harness.ranks import Pool

import torchcomms
from torchcomms import TorchComm

pytestmark = pytest.mark.skipif(has_gpu(), reason="these devices are stand-ins")

MOVING = ("all_gather", "all_gather_single", "all_to_all", "all_to_all_single", "broadcast")
BY_RDMA = "rails go from GPU to GPU by RDMA"
BY_HOST = "through the host's memory: "
SOON = timedelta(seconds=2)


def take_devices(rank: Rank, verbs: str, by_rank: dict[int, dict[str, str]]) -> None:
    """Variables of rank -1 are those of all."""
    os.environ.update(CTRAN_VERBS_LIBRARY=verbs)
    os.environ.update(by_rank.get(-1, {}))
    os.environ.update(by_rank.get(rank.rank, {}))


def use_devices(ranks: Ranks, by_rank: dict[int, dict[str, str]] | None = None) -> Ranks:
    ranks.run(take_devices, str(standins.verbs()), by_rank or {})
    return ranks


@pytest.fixture(scope="module")
def with_devices() -> Iterator[Callable[[int], Ranks]]:
    """Ranks of this file, which nothing breaks."""
    pool = Pool()

    def of(size: int) -> Ranks:
        return use_devices(pool.ranks(size))

    yield of
    pool.end()


def why(comm: TorchComm, kind: str = "all_gather") -> str:
    return str(comm.explain(kind, 1 << 20, torch.float32).why)


def flushes() -> int:
    return int(ctypes.CDLL(str(standins.driver())).standInRdmaFlushes())


def moves(rank: Rank, hosts: tuple[int, ...], dtype: torch.dtype, counts: tuple[int, ...]) -> None:
    comm = spread(rank, hosts, f"moves {dtype} {counts}", RAILS)
    assert BY_RDMA in why(comm, "broadcast"), why(comm, "broadcast")
    before = flushes()
    for operation in MOVING:
        if hosts == UNEVEN and operation != "broadcast":
            continue
        for number, count in enumerate(counts):
            for in_place in (False, True)[: 1 + OPERATIONS[operation].in_place]:
                for root in range(rank.size if operation == "broadcast" else 1):
                    arguments = Arguments(dtype, None, root, (count,) * rank.size, in_place, number)
                    hosts_cases._check_call(rank, comm, operation, arguments, number % 2 == 0)
    on_rail = hosts != UNEVEN or rank.rank != 1
    assert (flushes() > before) == on_rail
    comm.barrier(async_op=True).wait()
    comm.finalize()


@pytest.mark.parametrize("hosts", [EVEN, MIXED, ALONE, UNEVEN], ids=str)
def test_what_moves_goes_from_gpu_to_gpu(
    with_devices: Callable[[int], Ranks], hosts: tuple[int, ...]
) -> None:
    ranks = with_devices(len(hosts))
    ranks.run(moves, hosts, torch.uint8, (1, 2, 17, 4099))
    ranks.run(moves, hosts, torch.int32, (1000, 100_003))  # a part of a step, and several


def moves_on_streams(rank: Rank) -> None:
    """On several streams, without a wait between the calls."""
    comm = spread(rank, EVEN, "streams", RAILS)
    device, size = rank.device(BACKEND), rank.size
    for number in range(10):
        with rank.gpu().side_stream():
            count = (5, 30_001)[number % 2]
            own = torch.full((count,), 10 * rank.rank + number, dtype=torch.int32, device=device)
            gathered = torch.full((size * count,), -1, dtype=torch.int32, device=device)
            dealt = torch.full((size * count,), -1, dtype=torch.int32, device=device)
            rooted = own.clone()
            comm.all_gather_single(gathered, own, async_op=False)
            comm.all_to_all_single(dealt, gathered, async_op=True).wait()
            comm.broadcast(rooted, number % size, async_op=False)
        rank.synchronize(BACKEND)
        blocks = torch.tensor([10 * r + number for r in range(size)], dtype=torch.int32)
        assert torch.equal(gathered.cpu(), blocks.repeat_interleave(count))
        assert (dealt.cpu() == 10 * rank.rank + number).all()
        assert (rooted.cpu() == 10 * (number % size) + number).all()
    comm.finalize()


def test_operations_keep_their_order(with_devices: Callable[[int], Ranks]) -> None:
    with_devices(4).run(moves_on_streams)


def replays(rank: Rank, hosts: tuple[int, ...], count: int) -> None:
    comm = spread(rank, hosts, f"replays {count}", RAILS)
    device, size = rank.device(BACKEND), rank.size
    own = torch.zeros(count, dtype=torch.int32, device=device)
    gathered = torch.zeros(size * count, dtype=torch.int32, device=device)
    dealt = torch.zeros(size * count, dtype=torch.int32, device=device)
    rooted = torch.zeros(count, dtype=torch.int32, device=device)
    eager = torch.zeros(size, dtype=torch.int32, device=device)

    def step() -> None:
        comm.all_gather_single(gathered, own, async_op=True)
        comm.all_to_all_single(dealt, gathered, async_op=False)
        comm.broadcast(rooted, size - 1, async_op=True)

    replay = rank.gpu().capture(step)
    for number in range(6):
        own.fill_(10 * rank.rank + number)
        rooted.fill_(100 * rank.rank + number)
        rank.synchronize(BACKEND)
        replay()
        if number % 3 == 0:
            comm.all_gather_single(eager, own[:1], async_op=False)
        rank.synchronize(BACKEND)
        everybody = torch.tensor([10 * r + number for r in range(size)], dtype=torch.int32)
        assert torch.equal(gathered.cpu(), everybody.repeat_interleave(count))
        assert (dealt.cpu() == everybody[rank.rank]).all()
        assert (rooted.cpu() == 100 * (size - 1) + number).all()
        if number % 3 == 0:
            assert torch.equal(eager.cpu(), everybody)
    # A graph may outlive its communicator, which ends with it.
    comm.finalize()
    own.fill_(rank.rank)
    rank.synchronize(BACKEND)
    replay()
    rank.synchronize(BACKEND)
    assert torch.equal(gathered.cpu(), torch.arange(size).int().repeat_interleave(count))
    del replay


@pytest.mark.parametrize("count", [1, 50_001])
@pytest.mark.parametrize("hosts", [EVEN, ALONE], ids=str)
def test_graphs_are_replayed_with_other_inputs(
    with_devices: Callable[[int], Ranks], hosts: tuple[int, ...], count: int
) -> None:
    with_devices(len(hosts)).run(replays, hosts, count)


def reductions_beside(rank: Rank) -> None:
    """What reduces goes through the host's memory, in the same communicator."""
    hosts_cases._operations(rank, EVEN, RAILS)
    comm = spread(rank, EVEN, "beside")
    assert "RDMA" not in why(comm, "all_reduce")
    comm.finalize()


def test_what_reduces_passes_the_host(with_devices: Callable[[int], Ranks]) -> None:
    with_devices(4).run(reductions_beside)


def falls_back(rank: Rank) -> str:
    comm = spread(rank, EVEN, "falls back", RAILS)
    told = why(comm)
    before = flushes()
    for operation in MOVING:
        arguments = Arguments(torch.int32, None, 1, (30_001,) * rank.size, False)
        hosts_cases._check_call(rank, comm, operation, arguments, False)
    assert flushes() == before
    comm.barrier(async_op=True).wait()
    comm.finalize()
    return told


# What one rank lacks, and what all say.
LACKS = {
    "off": ({"CTRAN_GPU_DIRECT": "off"}, "rank 2: CTRAN_GPU_DIRECT is off"),
    "no RDMA": ({"CTRAN_IB": "0"}, "rank 2: CTRAN_IB is off"),
    "no device": ({"STAND_IN_VERBS_DEVICES": "0"}, "rank 2: RDMA cannot be used: "),
    "GPU": ({"STAND_IN_GPU_DIRECT": "0"}, "rank 2: RDMA devices do not reach the memory"),
    "registration": (
        {"STAND_IN_DMABUF": "0", "STAND_IN_VERBS_PEER_MEMORY": "0"},
        "cannot be registered at RDMA device standin_0:1: as a dma-buf: ",
    ),
}


@pytest.mark.parametrize("lacks", LACKS)
def test_where_a_rank_cannot_all_go_through_the_host(
    fresh_ranks: Callable[[int], Ranks], lacks: str
) -> None:
    variables, reason = LACKS[lacks]
    for told in use_devices(fresh_ranks(4), {2: variables}).run(falls_back):
        assert BY_HOST + "rank 2: " in told, told
        assert reason in told, told


def insists(rank: Rank) -> tuple[str, list[int]]:
    error = error_of(lambda: spread(rank, EVEN, "insists"), torchcomms.CommError)
    return str(error), error.ranks


def test_who_insists_is_refused_where_a_rank_cannot(fresh_ranks: Callable[[int], Ranks]) -> None:
    variables = {0: {"CTRAN_GPU_DIRECT": "on"}, 2: {"STAND_IN_GPU_DIRECT": "0"}}
    for told, named in use_devices(fresh_ranks(4), variables).run(insists):
        assert "rank 0 insists on GPUDirect RDMA" in told, told
        assert "rank 2: RDMA devices do not reach the memory" in told, told
        assert named == [2]


def way(rank: Rank) -> tuple[str, int]:
    before = flushes()
    moves_on_streams(rank)
    comm = spread(rank, EVEN, "way")
    told = why(comm)
    comm.finalize()
    return told, flushes() - before


def test_without_dma_bufs_the_peer_memory_module_serves(
    fresh_ranks: Callable[[int], Ranks],
) -> None:
    variables = {-1: {"STAND_IN_DMABUF": "0", "CTRAN_GPU_DIRECT": "on"}}
    for told, flushed in use_devices(fresh_ranks(4), variables).run(way):
        assert BY_RDMA in told, told
        assert flushed > 0


def test_a_gpu_that_keeps_the_order_needs_no_flush(fresh_ranks: Callable[[int], Ranks]) -> None:
    variables = {-1: {"STAND_IN_GPU_DIRECT": "ordered", "STAND_IN_VERBS_DEVICES": "1"}}
    for told, flushed in use_devices(fresh_ranks(4), variables).run(way):
        assert BY_RDMA in told, told
        assert flushed == 0


@pytest.mark.parametrize("seed", [1, 2])
def test_completions_come_in_any_order(fresh_ranks: Callable[[int], Ranks], seed: int) -> None:
    variables = {-1: {"STAND_IN_VERBS_SEED": str(seed), "CTRAN_IB_QPS": "2"}}
    ranks = use_devices(fresh_ranks(4), variables)
    ranks.run(moves, EVEN, torch.int32, (1, 1000, 100_003))
    ranks.run(replays, EVEN, 50_001)


# What goes wrong.


def gather(rank: Rank, comm: TorchComm, count: int = 1000, **options: Any) -> None:
    device = rank.device(BACKEND)
    own = torch.full((count,), rank.rank, dtype=torch.int32, device=device)
    gathered = torch.zeros(rank.size * count, dtype=torch.int32, device=device)
    comm.all_gather_single(gathered, own, async_op=True, **options).wait_blocking()


def barrier(rank: Rank, comm: TorchComm) -> None:
    """Does not raise what another rank has done since."""
    comm.barrier(async_op=False)
    rank.synchronize(BACKEND)


def starts(rank: Rank, name: str, **options: Any) -> TorchComm:
    comm = spread(rank, EVEN, name, RAILS, **options)
    assert BY_RDMA in why(comm)
    barrier(rank, comm)
    return comm


def is_late(rank: Rank) -> list[int]:
    comm = starts(rank, "late")
    if rank.rank == 3:
        until(comm.is_aborted, "the others give up")
        error = error_of(lambda: gather(rank, comm))
    else:
        error = error_of(lambda: gather(rank, comm, timeout=SOON), torchcomms.CommTimeoutError)
    rank.synchronize(BACKEND)  # the stream is free again
    return list(error.ranks)


def test_a_late_rank_is_named(fresh_ranks: Callable[[int], Ranks]) -> None:
    assert use_devices(fresh_ranks(4)).run(is_late) == [[3]] * 4


def dies(rank: Rank) -> list[int]:
    comm = starts(rank, "dies", timeout=timedelta(seconds=60))
    if rank.rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    error = error_of(lambda: gather(rank, comm, 100_003), torchcomms.PeerLostError)
    rank.synchronize(BACKEND)
    return list(error.ranks)


def test_a_dead_rank_is_named(fresh_ranks: Callable[[int], Ranks]) -> None:
    outcomes = use_devices(fresh_ranks(4)).start(dies).outcomes()
    assert outcomes == [*[Returned([3])] * 3, Died(-signal.SIGKILL)]


def aborts(rank: Rank) -> list[int]:
    comm = starts(rank, "aborts")
    if rank.rank == 3:
        rank.listen()  # until the others wait
        comm.abort()
        return list(error_of(lambda: gather(rank, comm), torchcomms.AbortedError).ranks)
    device = rank.device(BACKEND)
    own = torch.zeros(100_003, dtype=torch.int32, device=device)
    work = comm.all_gather_single(own.repeat(rank.size), own, async_op=True)
    rank.say("waiting")
    error = error_of(work.wait_blocking, torchcomms.AbortedError)
    rank.synchronize(BACKEND)
    return list(error.ranks)


def test_an_abort_ends_all(fresh_ranks: Callable[[int], Ranks]) -> None:
    job = use_devices(fresh_ranks(4)).start(aborts)
    for r in range(3):
        assert job.hear(r) == "waiting"
    job.say(3)
    assert job.results() == [[3]] * 4


def disagrees(rank: Rank, other: str) -> str:
    comm = starts(rank, "disagrees")

    def look() -> None:
        if EVEN[rank.rank] == 0 or other == "count":
            gather(rank, comm, 2000 if EVEN[rank.rank] else 1000)
        else:
            tensor = torch.zeros(1000, dtype=torch.int32, device=rank.device(BACKEND))
            comm.broadcast(tensor, 0, async_op=True).wait_blocking()
        for _ in range(100):
            comm.barrier(async_op=False).wait_blocking()

    told = str(error_of(look, torchcomms.MismatchError))
    rank.synchronize(BACKEND)
    return told


@pytest.mark.parametrize("other", ["count", "broadcast"])
def test_hosts_that_disagree_are_told(fresh_ranks: Callable[[int], Ranks], other: str) -> None:
    for told in use_devices(fresh_ranks(4)).run(disagrees, other):
        assert "rank" in told, told
        assert "all_gather" in told, told


def loses_a_device(rank: Rank) -> str:
    comm = starts(rank, "loses a device", timeout=timedelta(seconds=60))
    if rank.rank == 1:
        ctypes.CDLL(str(standins.verbs())).standInVerbsRemove(b"standin_0")

    def look() -> None:
        for _ in range(100):
            gather(rank, comm, 10_000)

    told = str(error_of(look))
    rank.synchronize(BACKEND)
    return told


def test_a_device_that_goes_ends_the_communicator(fresh_ranks: Callable[[int], Ranks]) -> None:
    for told in use_devices(fresh_ranks(4)).run(loses_a_device):
        assert "rank 1" in told, told
