#!/usr/bin/env python3
"""Measures default algorithms at every size, and takes the fastest one from then on.

torchrun --nproc-per-node 2 examples/torch-integration/customized_comm_with_tuning.py
"""

import statistics
import time

import torch

import mscclpp
from mscclpp.utils import torch_dtype_to_mscclpp_dtype

SIZES = [1 << i for i in range(10, 23)]  # bytes
CANDIDATES = {  # with the sizes for which they are tried
    "default_allreduce_packet": (0, 4 << 20),
    "default_allreduce_allpair_packet": (0, 64 << 10),
    "default_allreduce_rsag_zero_copy": (512 << 10, 1 << 62),
}
REPETITIONS = 5


class CustomizedComm:
    def __init__(self, group: mscclpp.CommGroup) -> None:
        self.group = group
        algorithms = mscclpp.AlgorithmCollectionBuilder().build_default_algorithms()
        self.algorithms = {algorithm.name: algorithm for algorithm in algorithms}
        self.best: dict[int, mscclpp.Algorithm] = {}
        self._tune()

    def _execute(self, algorithm: mscclpp.Algorithm, tensor: torch.Tensor) -> None:
        code = algorithm.execute(
            comm=self.group.communicator,
            input_buffer=tensor.data_ptr(),
            output_buffer=tensor.data_ptr(),
            input_size=tensor.nbytes,
            output_size=tensor.nbytes,
            dtype=torch_dtype_to_mscclpp_dtype(tensor.dtype),
            op=mscclpp.ReduceOp.SUM,
            symmetric_memory=True,
        )
        assert code == mscclpp.CommResult.COMM_SUCCESS

    def _seconds(self, algorithm: mscclpp.Algorithm, tensor: torch.Tensor) -> float:
        """What all ranks agree on: the mean of their medians. The timings are summed by an
        algorithm that is not being measured."""
        times = []
        for _ in range(REPETITIONS):
            tensor.zero_()  # sums of sums would overflow
            self.group.barrier()
            start = time.perf_counter()
            self._execute(algorithm, tensor)
            times.append(time.perf_counter() - start)
        total = torch.tensor([statistics.median(times)], dtype=torch.float64)
        self._execute(self.algorithms["default_allreduce_packet"], total)
        return float(total) / self.group.nranks

    def _tune(self) -> None:
        capsule = mscclpp.RawGpuBuffer(SIZES[-1]).to_dlpack(data_type=str(torch.float16))
        buffer = torch.utils.dlpack.from_dlpack(capsule)
        for size in SIZES:
            tensor = buffer[: size // buffer.element_size()]
            seconds = {
                name: self._seconds(self.algorithms[name], tensor)
                for name, (least, most) in CANDIDATES.items()
                if least <= size <= most
            }
            self.best[size] = self.algorithms[min(seconds, key=seconds.__getitem__)]

    def get_tuned_config(self, size: int) -> mscclpp.Algorithm:
        """Of the next size that was measured, or of the last one."""
        return self.best[next((known for known in SIZES if known >= size), SIZES[-1])]

    def all_reduce(self, tensor: torch.Tensor) -> None:
        self._execute(self.get_tuned_config(tensor.nbytes), tensor)


def main() -> None:
    with mscclpp.CommGroup() as group:
        comm = CustomizedComm(group)
        for count in (1, 1000, 2_000_001):
            tensor = (torch.arange(count) % 5 + group.my_rank).to(torch.float32)
            comm.all_reduce(tensor)
            expected = group.nranks * (torch.arange(count) % 5)
            expected += group.nranks * (group.nranks - 1) // 2
            torch.testing.assert_close(tensor, expected.to(torch.float32), rtol=0, atol=0)
        lines = [f"{size:>8} bytes: {algorithm.name}" for size, algorithm in comm.best.items()]
        if group.my_rank == 0:
            print("\n".join(lines) + "\n", end="", flush=True)


if __name__ == "__main__":
    main()
