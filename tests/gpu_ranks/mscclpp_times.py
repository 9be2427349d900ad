"""How long algorithms of `mscclpp` take on GPUs, in graphs, beside the engine and NCCL."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from harness import Rank

import mscclpp
from gpu_ranks import BACKEND
from gpu_ranks.mscclpp import Group, compiled, named, symmetric
from mscclpp import DataType
from torchcomms import ReduceOp

REPLAYS = 20
SMALL, LARGE = 8 << 10, 64 << 20


def _median(on: Group, body: Callable[[], Any], each: int) -> float:
    """Microseconds of a call among so many in a graph, on this rank."""
    body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(each):
            body()
    times = []
    for _ in range(REPLAYS):
        on.group.barrier()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / each)
    return statistics.median(times)


def _configs(on: Group, tensor: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """What is measured with a tensor of that size."""

    def of(algorithm: mscclpp.Algorithm, **more: int) -> Callable[[], Any]:
        return lambda: on.start(algorithm, tensor, tensor, **more)

    if tensor.nbytes == SMALL:
        programs = [
            compiled(name, ranks=on.group.nranks)
            for name in ("all_reduce_exchange", "all_reduce_one_shot")
        ]
        if on.group.nranks == 2:
            programs.append(compiled("all_reduce_packets"))
        names = ["packet", "nvls_packet", "allpair_packet"]
    else:
        programs = [
            compiled("all_reduce_two_shot", ranks=on.group.nranks, instances=instances)
            for instances in (1, 4)
        ]
        names = ["rsag_zero_copy", "rsag", "rsag_pipeline"]
    made = {f"default_allreduce_{name}": of(named(f"default_allreduce_{name}")) for name in names}
    made[f"{names[0]}, nblocks=16, nthreads=512"] = of(
        named(f"default_allreduce_{names[0]}"), nblocks=16, nthreads_per_block=512
    )
    for program, which in zip(programs, ("", ", 4 instances", ""), strict=False):
        label = f"dsl {program.name}" + (which if tensor.nbytes != SMALL else "")
        made[label] = of(program)
    if tensor.nbytes != SMALL:
        # Ranks reach each other's tensors then, as those of the program do.
        reached = symmetric(tensor.numel()).zero_()
        for algorithm in (programs[0], named("default_allreduce_rsag_zero_copy")):
            made[f"{algorithm.name}, symmetric"] = lambda a=algorithm: on.start(a, reached, reached)
    return made


def measure(rank: Rank, with_nccl: bool) -> list[dict[str, Any]]:
    """A row for each of them; of the slowest rank."""
    rows = []
    engine = rank.comm(BACKEND)
    if with_nccl:
        store = rank.store("nccl")
        dist.init_process_group("nccl", store=store, rank=rank.rank, world_size=rank.size)
    with Group(rank, "times") as on:
        for size, each in ((SMALL, 100), (1 << 20, 20), (LARGE, 5)):
            tensor = on.place(torch.zeros(size // 4))
            calls = _configs(on, tensor)
            calls["ctran"] = lambda t=tensor: engine.all_reduce(t, ReduceOp.SUM, async_op=False)
            if with_nccl:
                calls["nccl"] = lambda t=tensor: dist.all_reduce(t)
            for name, call in calls.items():
                own = torch.tensor([_median(on, call, each)], dtype=torch.float64)
                code = named("default_allreduce_packet").execute(
                    on.comm, own.data_ptr(), own.data_ptr(), 8, 8, DataType.float64,
                    mscclpp.ReduceOp.MAX,
                )  # fmt: skip
                assert code == 0
                rows.append({"name": name, "bytes": size, "us": round(float(own), 3)})
    if with_nccl:
        dist.destroy_process_group()
    return rows
