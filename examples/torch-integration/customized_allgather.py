#!/usr/bin/env python3
"""All-gather with a kernel of one's own, customized_allgather.cu, which is compiled when this runs.

torchrun --nproc-per-node 2 examples/torch-integration/customized_allgather.py
"""

import os

import torch

import mscclpp
import mscclpp.utils as mscclpp_utils


class CustomizedComm:
    """Executes the algorithm on tensors."""

    def __init__(self, comm: mscclpp.CommGroup) -> None:
        self.comm = comm
        file = os.path.join(os.path.dirname(__file__), "customized_allgather.cu")
        mscclpp_native = mscclpp.compile_native(name="mscclpp_native", file=file)
        capsule = mscclpp_native.create_allgather_algorithm()
        self.algorithm = mscclpp.Algorithm.create_from_native_capsule(capsule)

    def all_gather(self, tensor: torch.Tensor, out_tensor: torch.Tensor, stream=None) -> None:
        code = self.algorithm.execute(
            self.comm.communicator,
            tensor.data_ptr(),
            out_tensor.data_ptr(),
            tensor.nbytes,
            out_tensor.nbytes,
            mscclpp_utils.torch_dtype_to_mscclpp_dtype(tensor.dtype),
            stream=stream.cuda_stream if stream else 0,
        )
        assert code == 0, mscclpp.CommResult(code)


def main() -> None:
    if torch.cuda.is_available():
        torch.set_default_device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}")
        torch.cuda.set_device(torch.get_default_device())
    with mscclpp.CommGroup() as group:
        comm = CustomizedComm(group)
        rank, size = group.my_rank, group.nranks
        for count in (1, 1000, 1 << 20):
            blocks = torch.arange(size * count, dtype=torch.int32).reshape(size, count) * 3
            output = torch.full_like(blocks, -1)
            comm.all_gather(blocks[rank].clone(), output)
            assert torch.equal(output, blocks)
            comm.all_gather(output[rank], output)  # in place
            assert torch.equal(output, blocks)
        group.barrier()
        print(f"[rank {rank}] of {size}: all blocks are there\n", end="", flush=True)


if __name__ == "__main__":
    main()
