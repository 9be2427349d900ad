"""Streams, works, graphs, communicators: how the backend behaves when all goes well."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from harness import Rank
from harness.matrix import prepared
from harness.operations import OPERATIONS, Arguments

import torchcomms
from nccl_ranks import Make, case
from torchcomms import ReduceOp, WorkStatus

COUNT = 1000


def _ones(rank: Rank, count: int = COUNT) -> torch.Tensor:
    return torch.full((count,), float(rank.rank + 1), device=rank.device("nccl"))


def _sum(size: int) -> float:
    return size * (size + 1) / 2


def _check(rank: Rank, tensor: torch.Tensor, expected: float) -> None:
    rank.synchronize("nccl")
    found = tensor.cpu()
    assert (found == expected).all(), f"{found[0]} instead of {expected}"


def _describes_itself(rank: Rank) -> None:
    comm = rank.new_comm("nccl", "described")
    assert (comm.get_rank(), comm.get_size()) == (rank.rank, rank.size)
    assert comm.get_backend() == "nccl"
    assert comm.get_backend_version().startswith("2.")
    assert comm.get_device().type == rank.device("nccl").type
    assert comm.is_abort_supported()
    assert not comm.is_aborted()
    comm.finalize()
    told = ""
    try:
        comm.barrier(async_op=False)
    except torchcomms.CommError as error:
        told = str(error)
    assert "already finalized" in told


@case(world=2)
def a_name_serves_again(make: Make) -> None:
    ranks = make(2)
    for _ in range(3):
        ranks.run(_describes_itself)


def _works(rank: Rank) -> None:
    comm = rank.comm("nccl")
    tensor = _ones(rank)
    work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    work.wait_blocking()
    assert work.is_completed()
    assert work.status == WorkStatus.COMPLETED
    assert work.exception() is None
    _check(rank, tensor, _sum(rank.size))

    work = comm.all_reduce(tensor, ReduceOp.MAX, async_op=True)
    work.wait()
    again = comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)  # behind it, on this stream
    _check(rank, tensor, _sum(rank.size) * rank.size)
    assert work.is_completed()
    assert again.wait(torchcomms.Timeout(seconds=20))


@case(world=2)
def works_tell_how_far_they_are(make: Make) -> None:
    make(2).run(_works)


def _side_stream(rank: Rank) -> None:
    comm = rank.comm("nccl")
    tensor = _ones(rank)
    with rank.gpu().side_stream():
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        comm.all_reduce(tensor, ReduceOp.MAX, async_op=True).wait()
        comm.barrier(async_op=True).wait()
        comm.barrier(async_op=False)
    _check(rank, tensor, _sum(rank.size))


@case(world=2)
def operations_follow_the_current_stream(make: Make) -> None:
    make(2).run(_side_stream)


def _no_synchronisation(rank: Rank) -> None:
    """Producer, collective and consumer on the device, with a slow producer."""
    comm = rank.comm("nccl")
    tensor = torch.zeros(1 << 20, device=rank.device("nccl"))
    for async_op in (False, True):
        torch.cuda._sleep(200_000_000)
        tensor.fill_(float(rank.rank + 1))
        work = comm.all_reduce(tensor, ReduceOp.SUM, async_op)
        assert not work.is_completed()
        work.wait()
        tensor.mul_(2)
        _check(rank, tensor, 2 * _sum(rank.size))


def _outlives(rank: Rank) -> None:
    """The program lets go of an input at once, and takes memory of that size again."""
    comm = rank.comm("nccl")
    device = rank.device("nccl")
    for _ in range(20):
        outputs = [torch.zeros(1 << 16, device=device) for _ in range(rank.size)]
        whole = torch.zeros(rank.size << 16, device=device)
        work = comm.all_gather(outputs, _ones(rank, 1 << 16), async_op=True)
        other = comm.all_gather_single(whole, _ones(rank, 1 << 16), async_op=True)
        garbage = [torch.full((1 << 16,), -1.0, device=device) for _ in range(4)]
        work.wait()
        other.wait()
        for r in range(rank.size):
            _check(rank, outputs[r], r + 1)
            _check(rank, whole[r << 16 : (r + 1) << 16], r + 1)
        del garbage


@case(world=2)
def tensors_live_as_long_as_they_are_needed(make: Make) -> None:
    make(2).run(_outlives)


@case(world=2)
def the_device_needs_no_help_from_the_cpu(make: Make) -> None:
    from harness.devices import has_gpu

    if has_gpu():
        make(2).run(_no_synchronisation)


def _captured(rank: Rank, async_op: bool) -> None:
    """Every operation, replayed on fresh inputs."""
    for operation in OPERATIONS:
        op = "SUM" if OPERATIONS[operation].reduces else None
        arguments = Arguments(torch.float32, op, 0, (COUNT,) * rank.size, False)
        call = prepared(rank, operation, arguments, "nccl")
        call.issue(False)  # connections are made before the capture
        rank.synchronize("nccl")
        call = prepared(rank, operation, arguments, "nccl")
        replay = rank.gpu().capture(lambda call=call: call.issue(async_op))
        replay()
        rank.synchronize("nccl")
        close = lambda a, b: torch.allclose(a, b, atol=1e-4)  # noqa: E731
        problems = call.problems(close)
        assert not problems, f"{operation}: {problems}"
        del replay


@case(world=2)
def every_operation_is_captured(make: Make) -> None:
    ranks = make(2)
    ranks.run(_captured, False)
    ranks.run(_captured, True)


def _replays(rank: Rank) -> None:
    comm = rank.new_comm("nccl", "replays")
    tensor = _ones(rank)
    comm.all_reduce(tensor.clone(), ReduceOp.SUM, async_op=False)
    rank.synchronize("nccl")
    before = torch.cuda.memory_allocated() if rank.gpu().is_real else 0

    def step() -> None:
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=True)  # as the documentation prints it
        work = comm.all_reduce(tensor, ReduceOp.AVG, async_op=True)
        work.wait()  # changes nothing
        assert work.is_completed()

    replay = rank.gpu().capture(step)
    eager = _ones(rank)
    for number in range(300):
        tensor.fill_(float(rank.rank + number))
        rank.synchronize("nccl")
        replay()
        if number % 10 == 0:
            eager.fill_(1.0)
            rank.synchronize("nccl")
            comm.all_reduce(eager, ReduceOp.SUM, async_op=True).wait()
        rank.synchronize("nccl")
        _check(rank, tensor, rank.size * number + _sum(rank.size - 1))
    _check(rank, eager, rank.size)
    # A graph may outlive its communicator, which ends with it.
    comm.finalize()
    replay()
    rank.synchronize("nccl")
    del replay
    assert rank.gpu().is_real is False or before > 0


@case(world=2)
def graphs_are_replayed_between_eager_operations(make: Make) -> None:
    make(2).run(_replays)


def _many_graphs(rank: Rank) -> None:
    """Two graphs of two communicators, of which one follows several streams; a rank comes late."""
    comms = [rank.new_comm("nccl", f"graphs-{i}") for i in range(2)]
    tensors = [_ones(rank) for _ in range(3)]
    for comm in comms:
        comm.all_reduce(_ones(rank), ReduceOp.SUM, async_op=False)
    rank.synchronize("nccl")

    def both() -> None:
        for comm, tensor in zip(comms, tensors[:2], strict=True):
            comm.all_reduce(tensor, ReduceOp.SUM, async_op=True)
            comm.all_reduce(tensor, ReduceOp.MAX, async_op=False)

    def one() -> None:
        for _ in range(20):
            comms[0].all_reduce(tensors[2], ReduceOp.AVG, async_op=True).wait()

    replays = [rank.gpu().capture(both), rank.gpu().capture(one)]
    for number in range(50):
        for tensor in tensors:
            tensor.fill_(float(rank.rank + number))
        rank.synchronize("nccl")
        if number % 10 == 0:
            rank.gpu().delay(rank.rank == number // 10 % rank.size)
        for replay in replays:
            replay()
        eager = _ones(rank)
        rank.synchronize("nccl")
        comms[1].all_reduce(eager, ReduceOp.SUM, async_op=True).wait_blocking()
        _check(rank, eager, _sum(rank.size))
        for tensor in tensors[:2]:
            _check(rank, tensor, rank.size * number + _sum(rank.size - 1))
        _check(rank, tensors[2], number + _sum(rank.size - 1) / rank.size)
    # Launched ahead, they are still known to make progress.
    for _ in range(200):
        for replay in replays:
            replay()
    rank.synchronize("nccl")
    del replays
    for comm in comms:
        comm.finalize()


@case(world=2)
def graphs_of_several_communicators_are_replayed(make: Make) -> None:
    make(2).run(_many_graphs)


def _parts(rank: Rank) -> None:
    comm = rank.new_comm("nccl", "parts")
    last = rank.size - 1
    turned = comm.split(list(reversed(range(rank.size))), "turned")
    assert turned is not None
    assert turned.get_rank() == last - rank.rank
    tensor = _ones(rank)
    turned.broadcast(tensor, 0, async_op=False)
    _check(rank, tensor, rank.size)
    alone = comm.split([last] if rank.rank == last else [], "alone")
    assert (alone is not None) == (rank.rank == last)
    if alone is not None:
        tensor = _ones(rank)
        alone.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait_blocking()
        _check(rank, tensor, rank.rank + 1)
        alone.finalize()
    halves = comm.split(rank_groups=[[0], list(range(1, rank.size))])
    assert halves is not None
    tensor = _ones(rank)
    halves.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    comm.barrier(async_op=False)
    _check(rank, tensor, 1 if rank.rank == 0 else _sum(rank.size) - 1)
    inner = turned.split([0, 1] if turned.get_rank() < 2 else [])
    if inner is not None:
        inner.barrier(async_op=False)
        rank.synchronize("nccl")
        inner.finalize()
    for one in (halves, turned, comm):
        one.finalize()


@case(world=2)
def parts_of_two(make: Make) -> None:
    make(2).run(_parts)


@case(world=4)
def parts_of_four(make: Make) -> None:
    make(4).run(_parts)


def _hinted(rank: Rank, hints: dict[str, str]) -> None:
    comm = rank.new_comm("nccl", f"hinted-{sorted(hints)}", hints=hints)
    tensor = _ones(rank)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait()
    part = comm.split([rank.rank])
    assert part is not None
    part.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    _check(rank, tensor, _sum(rank.size))
    part.finalize()
    comm.finalize()


@case(world=2)
def hints_reach_the_library(make: Make) -> None:
    ranks = make(2)
    ranks.run(_hinted, {"blocking": "0"})
    ranks.run(_hinted, {"blocking": "false", "minCTAs": "1", "maxCTAs": "4", "splitShare": "1"})
    ranks.run(_hinted, {"torchcomm::ncclx::high_priority_stream": "true"})
    ranks.run(_hinted, {"cga_cluster_size": "2", "commName": "another", "CTAPolicy": "0"})
    ranks.run(_hinted, {"is_high_priority_stream": "1", "garbage_collect_interval_ms": "10"})
    graphs = {"enable_cuda_graph_support": "0", "graph_timeout_check_interval_ms": "50"}
    ranks.run(_hinted, graphs)


def _gloo(rank: Rank) -> None:
    """Tensors of the GPU through host memory, in parts too."""
    if not rank.gpu().is_real:
        return
    options = torchcomms.CommOptions()
    options.rank, options.size = rank.rank, rank.size
    comm = torchcomms.new_comm(
        "gloo", rank.device("nccl"), "gloo", options=options, store=rank.store("gloo")
    )
    assert comm.get_device() == rank.device("nccl")
    for part in (comm, comm.split(list(range(rank.size)))):
        assert part is not None
        for async_op in (False, True):
            tensor = _ones(rank)
            torch.cuda._sleep(20_000_000)
            tensor.mul_(2)
            part.all_reduce(tensor, ReduceOp.SUM, async_op).wait()
            _check(rank, tensor, 2 * _sum(rank.size))
            outputs = [torch.zeros_like(tensor) for _ in range(rank.size)]
            part.all_gather(outputs, _ones(rank), async_op).wait()
            for r, output in enumerate(outputs):
                _check(rank, output, r + 1)
            scattered = torch.zeros(COUNT, device=tensor.device)
            part.reduce_scatter(scattered, [_ones(rank)] * rank.size, ReduceOp.SUM, async_op).wait()
            _check(rank, scattered, _sum(rank.size))
            works = []
            if rank.rank == 0:
                works.append(part.send(_ones(rank), 1, async_op))
            elif rank.rank == 1:
                works.append(part.recv(tensor, 0, async_op))
            for work in works:
                work.wait()
            if rank.rank == 1:
                _check(rank, tensor, 1)
        part.finalize()


@case(world=2)
def gloo_takes_tensors_of_gpus(make: Make) -> None:
    make(2).run(_gloo)


def _pooled(rank: Rank) -> None:
    """Tensors in memory of the library."""
    comm = rank.comm("nccl")
    if rank.gpu().is_real:
        pool = torch.cuda.MemPool(comm.mem_allocator)
        with torch.cuda.use_mem_pool(pool):
            tensor = _ones(rank, 1 << 20)
    else:
        tensor = _in_memory_of_the_library(1 << 20).fill_(rank.rank + 1)
    comm.tensor_register(tensor)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait()
    comm.all_reduce(tensor, ReduceOp.MAX, async_op=False)
    _check(rank, tensor, _sum(rank.size))
    comm.tensor_deregister(tensor)


def _gloo_captured(rank: Rank) -> None:
    """Replays know nothing of the host's memory: refused, and the capture goes on."""
    if not rank.gpu().is_real:
        return
    options = torchcomms.CommOptions()
    options.rank, options.size = rank.rank, rank.size
    comm = torchcomms.new_comm(
        "gloo", rank.device("nccl"), "captured", options=options, store=rank.store("captured")
    )
    tensor, pending = _ones(rank), _ones(rank)
    work = comm.all_reduce(pending, ReduceOp.SUM, async_op=True)
    said = []

    def body() -> None:
        for call in (
            lambda: comm.all_reduce(tensor, ReduceOp.SUM, async_op=True),
            lambda: comm.send(tensor, 0, async_op=False),
            lambda: comm.barrier(async_op=False),
        ):
            try:
                call()
            except torchcomms.CommError as error:
                said.append(str(error))
        while not work.is_completed():  # looking at it does not spoil the capture
            pass
        tensor.add_(1)

    replay = rank.gpu().capture(body)
    assert len(said) == 3, said
    assert all("goes through host memory" in text for text in said), said
    _check(rank, pending, _sum(rank.size))  # nobody has waited
    replay()
    _check(rank, tensor, rank.rank + 2)
    comm.finalize()


@case(world=2)
def gloo_is_refused_in_captures(make: Make) -> None:
    make(2).run(_gloo_captured)


def _wrapped_pool(rank: Rank, backend: str) -> None:
    """torch.distributed registers a whole pool."""
    if not rank.gpu().is_real:
        return
    comm = rank.comm(backend)
    wrapper = torchcomms._comms._BackendWrapper(comm)
    pool = torch.cuda.MemPool(wrapper.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        tensor = _ones(rank, 1 << 20)
    wrapper.register_mem_pool(pool)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait()
    _check(rank, tensor, _sum(rank.size))
    wrapper.deregister_mem_pool(pool)


@case(world=2)
def pools_are_registered_through_c10d(make: Make) -> None:
    make(2).run(_wrapped_pool, "nccl")
    make(2).run(_wrapped_pool, "ncclx")


def _in_memory_of_the_library(count: int) -> torch.Tensor:
    """As a torch.cuda.MemPool gets it; never freed."""
    library = ctypes.CDLL(str(Path(torchcomms._comms.__file__).parent / "lib/libtorchcomms.so"))
    library.torchcomms_nccl_allocate.restype = ctypes.c_void_p
    library.torchcomms_nccl_allocate.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    address = library.torchcomms_nccl_allocate(4 * count, 0, None)
    assert address % 4096 == 0
    again = library.torchcomms_nccl_allocate(4096, 0, None)
    library.torchcomms_nccl_free.argtypes = [
        ctypes.c_void_p,
        *library.torchcomms_nccl_allocate.argtypes,
    ]
    library.torchcomms_nccl_free(again, 4096, 0, None)
    return torch.frombuffer((ctypes.c_float * count).from_address(address), dtype=torch.float32)


@case(world=2)
def memory_of_the_library_serves_tensors(make: Make) -> None:
    make(2).run(_pooled)
