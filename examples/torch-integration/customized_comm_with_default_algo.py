#!/usr/bin/env python3
"""All-reduce by default algorithms, one for small and one for large messages.

torchrun --nproc-per-node 2 examples/torch-integration/customized_comm_with_default_algo.py

On GPUs where there are some, else on the CPU.
"""

import os

import torch

import mscclpp
from mscclpp.utils import torch_dtype_to_mscclpp_dtype

SMALL = 1 << 20  # bytes


class CustomizedComm:
    """Chooses by the size of the tensor."""

    def __init__(self, group: mscclpp.CommGroup) -> None:
        self.group = group
        # Scratch of MSCCL++; the engine beneath has its own and leaves this alone.
        capsule = mscclpp.RawGpuBuffer(1 << 20).to_dlpack(data_type=str(torch.float16))
        self.scratch = torch.utils.dlpack.from_dlpack(capsule)
        algorithms = mscclpp.AlgorithmCollectionBuilder().build_default_algorithms(
            scratch_buffer=self.scratch.data_ptr(),
            scratch_buffer_size=self.scratch.nbytes,
            rank=group.my_rank,
        )
        by_name = {algorithm.name: algorithm for algorithm in algorithms}
        self.small = by_name["default_allreduce_nvls_packet"]
        self.large = by_name["default_allreduce_nvls_warp_pipeline"]

    def all_reduce(self, tensor: torch.Tensor) -> None:
        algorithm = self.small if tensor.nbytes < SMALL else self.large
        code = algorithm.execute(
            comm=self.group.communicator,
            input_buffer=tensor.data_ptr(),
            output_buffer=tensor.data_ptr(),
            input_size=tensor.nbytes,
            output_size=tensor.nbytes,
            dtype=torch_dtype_to_mscclpp_dtype(tensor.dtype),
            op=mscclpp.ReduceOp.SUM,
            stream=torch.cuda.current_stream().cuda_stream if tensor.is_cuda else 0,
        )
        assert code == mscclpp.CommResult.COMM_SUCCESS


def own_device() -> torch.device:
    """Of this process; ranks share GPUs where there are too few."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


def main() -> None:
    device = own_device()
    with mscclpp.CommGroup() as group:
        comm = CustomizedComm(group)
        rank, size = group.my_rank, group.nranks
        for count in (1, 1000, 3_000_001):
            tensor = (torch.arange(count) % 5 + rank).to(device, torch.float32)
            comm.all_reduce(tensor)
            expected = size * (torch.arange(count) % 5) + size * (size - 1) // 2
            torch.testing.assert_close(tensor.cpu(), expected.to(torch.float32), rtol=0, atol=0)
        print(f"[rank {rank}] of {size}: sums are right\n", end="", flush=True)


if __name__ == "__main__":
    main()
