#!/usr/bin/env python3
"""An all-reduce of one's own, in the DSL: proved right when it is compiled, executed, and then
serving the gradients of DistributedDataParallel.

torchrun --nproc-per-node 2 examples/torch-integration/customized_comm_with_dsl.py

On GPUs where there are some, else on the CPU.
"""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import mscclpp
from mscclpp.language import (
    AllReduce,
    BufferType,
    CollectiveProgram,
    MemoryChannel,
    Rank,
    SwitchChannel,
    SyncType,
)
from mscclpp.utils import torch_dtype_to_mscclpp_dtype


def allreduce_nvls(spec: mscclpp.AlgoSpec) -> CollectiveProgram:
    """Each rank reduces its chunk from all inputs, and stores it to all of them. A switch channel
    says that; without multicast, it is read from all and written to all."""
    ranks = range(spec.world_size)
    with CollectiveProgram.from_spec(spec) as program:
        everyone = SwitchChannel(rank_list=list(ranks), buffer_type=BufferType.input)
        to = {(peer, me): MemoryChannel(peer, me) for me in ranks for peer in ranks if peer != me}

        # All inputs are there.
        for channel in to.values():
            channel.signal(tb=0, relaxed=True)
        for channel in to.values():
            channel.wait(tb=0, relaxed=True, data_sync=SyncType.after)
        for me in ranks:
            chunk = Rank(me).get_input_buffer()[me : me + 1]
            everyone.at_rank(me).reduce(buffer_offset=me, size=1, dst_chunk=chunk, tb=0)
            everyone.at_rank(me).broadcast(src_chunk=chunk, buffer_offset=me, size=1, tb=0)
        # All results are.
        for channel in to.values():
            channel.signal(tb=0, data_sync=SyncType.before)
        for channel in to.values():
            channel.wait(tb=0, data_sync=SyncType.after)
    return program


def setup_algorithm(group: mscclpp.CommGroup) -> mscclpp.DslAlgorithm:
    spec = mscclpp.AlgoSpec(
        name="allreduce_nvls",
        collective=AllReduce(group.nranks, 1, True),
        nranks_per_node=group.nranks_per_node,
        world_size=group.nranks,
        in_place=True,
        instances=2,
        protocol="Simple",
        tags={"nvls": 1},
    )
    return mscclpp.compile(algo=allreduce_nvls, algo_spec=spec, rank=group.my_rank)


class CustomizedComm:
    def __init__(self, group: mscclpp.CommGroup, algorithm: mscclpp.Algorithm) -> None:
        self.group = group
        self.algorithm = algorithm
        self.executor = mscclpp.Executor(group.communicator)

    def all_reduce(self, tensor: torch.Tensor) -> None:
        code = self.algorithm.execute(
            comm=self.group.communicator,
            executor=self.executor,
            input_buffer=tensor.data_ptr(),
            output_buffer=tensor.data_ptr(),
            input_size=tensor.nbytes,
            output_size=tensor.nbytes,
            dtype=torch_dtype_to_mscclpp_dtype(tensor.dtype),
            stream=torch.cuda.current_stream().cuda_stream if tensor.is_cuda else 0,
        )
        assert code == mscclpp.CommResult.COMM_SUCCESS


def train(algorithm: mscclpp.Algorithm, device: torch.device) -> None:
    """The gradients of a model are summed by the program."""
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(100, 10).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with mscclpp.register(algorithm, prefer=True):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 100, device=device)).square().mean().backward()
            optimizer.step()


def own_device() -> torch.device:
    """Of this process; ranks share GPUs where there are too few."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


def main() -> None:
    device = own_device()
    dist.init_process_group("cpu:gloo,cuda:ctran" if device.type == "cuda" else "ctran")
    group = mscclpp.CommGroup(torch_group=dist.group.WORLD)
    rank, size = group.my_rank, group.nranks
    algorithm = setup_algorithm(group)
    comm = CustomizedComm(group, algorithm)
    for count in (1, 1000, 300_001):
        tensor = (torch.arange(count) % 5 + rank).to(device, torch.float32)
        comm.all_reduce(tensor)
        expected = size * (torch.arange(count) % 5) + size * (size - 1) // 2
        torch.testing.assert_close(tensor.cpu(), expected.to(torch.float32), rtol=0, atol=0)
    served = algorithm.explain(group.communicator, 4096, mscclpp.DataType.float32)
    train(algorithm, device)
    print(f"[rank {rank}] of {size}: served by {served}\n", end="", flush=True)
    group.finalize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
