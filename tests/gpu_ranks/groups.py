"""Groups of torch.distributed with a backend for each type of device, and what trains on them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from harness import Rank
from harness.groups import process_group

from gpu_ranks import BACKEND, Make, case

COUNT = 1000
# Torch keeps one backend that is not its own for all devices of a group: the other is its Gloo.
OURS = "cpu:gloo,cuda:ctran"
STACKS = (
    "data_parallel",
    "data_parallel_with_a_hook",
    "data_parallel_with_sparse_gradients",
    "fully_sharded",
    "hybrid_sharded",
    "tensor_parallel",
    "pipeline_parallel",
    "sharded_optimizer",
    "checkpoint",
    "device_mesh",
)


def _data(rank: int, count: int, device: torch.device) -> torch.Tensor:
    return (torch.arange(count, device=device) % 101 + 1000.0 * rank).float()


def _collectives(rank: Rank, device: torch.device, group: dist.ProcessGroup | None = None) -> None:
    """What the training stacks call, on tensors of that device."""
    me, size = rank.rank, rank.size
    everybody = [_data(r, COUNT * size, device) for r in range(size)]
    blocks = [data.chunk(size) for data in everybody]
    total = torch.stack(everybody).sum(0)

    value = everybody[me].clone()
    dist.all_reduce(value, group=group)
    assert torch.equal(value, total)
    value = everybody[me].clone()
    work = dist.all_reduce(value, op=dist.ReduceOp.MAX, group=group, async_op=True)
    assert work is not None
    work.wait()
    assert torch.equal(value, everybody[-1])
    value = everybody[me].clone()
    dist.broadcast(value, src=size - 1, group=group)
    assert torch.equal(value, everybody[-1])

    whole = torch.full((COUNT * size,), -1.0, device=device)
    dist.all_gather_into_tensor(whole, blocks[me][0].contiguous(), group=group)
    assert torch.equal(whole, torch.cat([blocks[r][0] for r in range(size)]))
    parts = [torch.full((COUNT,), -1.0, device=device) for _ in range(size)]
    dist.all_gather(parts, blocks[me][1].contiguous(), group=group)
    assert torch.equal(torch.cat(parts), torch.cat([blocks[r][1] for r in range(size)]))
    part = torch.full((COUNT,), -1.0, device=device)
    dist.reduce_scatter_tensor(part, everybody[me], group=group)
    assert torch.equal(part, total.chunk(size)[me])
    whole.fill_(-1.0)
    dist.all_to_all_single(whole, everybody[me], group=group)
    assert torch.equal(whole, torch.cat([blocks[r][me] for r in range(size)]))

    after, before = (me + 1) % size, (me - 1) % size
    part.fill_(-1.0)
    ops = [
        dist.P2POp(dist.isend, blocks[me][0].contiguous(), after, group),
        dist.P2POp(dist.irecv, part, before, group),
    ]
    for pending in dist.batch_isend_irecv(ops):
        pending.wait()
    assert torch.equal(part, blocks[before][0])
    dist.barrier(group=group)


def _both(rank: Rank, backend: str) -> None:
    cuda, cpu = rank.device(BACKEND), torch.device("cpu")
    names = dict(part.split(":") for part in backend.split(","))
    with process_group(rank, backend):
        world = dist.group.WORLD
        assert world is not None
        for device in (cpu, cuda):
            assert world._get_backend(device).name() == names[device.type]
            _collectives(rank, device)
        other = dist.new_group(list(range(rank.size)))
        _collectives(rank, cuda, other)
        _collectives(rank, cpu, other)
        gathered: list[object] = [None] * rank.size
        dist.all_gather_object(gathered, {"rank": rank.rank})
        assert gathered == [{"rank": r} for r in range(rank.size)]
        # What the stream holds before and behind is ordered with it.
        value = torch.zeros(1 << 22, device=cuda)
        for turn in range(20):
            value.add_(1.0)
            dist.all_reduce(value)
            value.div_(rank.size)
            assert turn or value[0].item() == 1.0
        assert (value == 20.0).all()


@case(world=2, real=True)
def a_group_has_gloo_for_cpu_and_ctran_for_gpu(make: Make) -> None:
    make(2).run(_both, OURS)


@case(world=2, real=True, apart=True)
def a_group_has_ctran_for_cpu_and_nccl_for_gpu(make: Make) -> None:
    make(2).run(_both, "cpu:ctran,cuda:nccl")


@case(world=2, real=True)
def a_group_has_gloo_for_cpu_and_ncclx_for_gpu(make: Make) -> None:
    make(2).run(_both, "cpu:gloo,cuda:ncclx")


def _captured(rank: Rank, backend: str) -> None:
    device = rank.device(BACKEND)
    with process_group(rank, backend):
        value, large = torch.zeros(COUNT, device=device), torch.zeros(1 << 20, device=device)
        whole = torch.zeros(COUNT * rank.size, device=device)

        def step() -> None:
            dist.all_reduce(value)
            dist.all_reduce(large, async_op=True).wait()
            dist.all_gather_into_tensor(whole, value)

        step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        for number in range(50):
            value.fill_(float(rank.rank + number))
            large.fill_(float(number))
            graph.replay()
            assert (whole == 2 * number + 1).all()
            assert (large == 2 * number).all()
        torch.cuda.synchronize()
        del graph


@case(world=2, real=True)
def groups_are_captured(make: Make) -> None:
    make(2).run(_captured, OURS)
    make(2).run(_captured, "cpu:gloo,cuda:ncclx")


def _stacks() -> Any:
    """Imported where a stack runs: it imports much of torch."""
    name = "torchcomms_test_stacks"
    if name not in sys.modules:
        place = Path(__file__).parents[1] / "distributed" / "c10d" / "stacks.py"
        spec = importlib.util.spec_from_file_location(name, place)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def _trains(rank: Rank, stack: str) -> None:
    stacks = _stacks()
    stacks.DEVICE = rank.device(BACKEND)
    with process_group(rank, OURS):
        getattr(stacks, stack)(rank)


def _register(stack: str) -> None:
    def run(make: Make) -> None:
        make(2).run(_trains, stack)

    run.__name__ = f"{stack}_trains_on_gpus"
    case(world=2, real=True)(run)


for _stack in STACKS:
    _register(_stack)
