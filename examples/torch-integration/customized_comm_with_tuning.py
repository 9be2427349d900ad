#!/usr/bin/env python3
"""Measures default algorithms at every size, and takes the fastest one from then on.

torchrun --nproc-per-node 2 examples/torch-integration/customized_comm_with_tuning.py

On GPUs where there are some, with several numbers of thread blocks and of threads, else on the CPU.
"""

import itertools
import os
import statistics
import time
from typing import NamedTuple

import torch

import mscclpp
from mscclpp.utils import torch_dtype_to_mscclpp_dtype

SIZES = [1 << i for i in range(10, 23)]  # bytes
CANDIDATES = {  # with the sizes for which they are tried
    "default_allreduce_packet": (0, 4 << 20),
    "default_allreduce_allpair_packet": (0, 64 << 10),
    "default_allreduce_rsag_zero_copy": (512 << 10, 1 << 62),
}
BLOCKS, THREADS = (8, 24, 64), (128, 512)  # of GPUs
REPETITIONS = 5


class Config(NamedTuple):
    algorithm: mscclpp.Algorithm
    nblocks: int = 0  # as the algorithm likes
    nthreads: int = 0


class CustomizedComm:
    def __init__(self, group: mscclpp.CommGroup, device: torch.device) -> None:
        self.group = group
        self.device = device
        algorithms = mscclpp.AlgorithmCollectionBuilder().build_default_algorithms()
        self.algorithms = {algorithm.name: algorithm for algorithm in algorithms}
        self.best: dict[int, Config] = {}
        self._tune()

    def _execute(self, config: Config, tensor: torch.Tensor) -> None:
        code = config.algorithm.execute(
            comm=self.group.communicator,
            input_buffer=tensor.data_ptr(),
            output_buffer=tensor.data_ptr(),
            input_size=tensor.nbytes,
            output_size=tensor.nbytes,
            dtype=torch_dtype_to_mscclpp_dtype(tensor.dtype),
            op=mscclpp.ReduceOp.SUM,
            stream=torch.cuda.current_stream().cuda_stream if tensor.is_cuda else 0,
            nblocks=config.nblocks,
            nthreads_per_block=config.nthreads,
            symmetric_memory=True,
        )
        assert code == mscclpp.CommResult.COMM_SUCCESS

    def _calls(self, config: Config, tensor: torch.Tensor) -> list[float]:
        """How long some calls took."""
        times = []
        for _ in range(REPETITIONS):
            tensor.zero_()  # sums of sums would overflow
            self.group.barrier()
            start = time.perf_counter()
            self._execute(config, tensor)
            times.append(time.perf_counter() - start)
        return times

    def _replays(self, config: Config, tensor: torch.Tensor, each: int = 20) -> list[float]:
        """The same of calls in a graph."""
        tensor.zero_()
        self._execute(config, tensor)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(each):
                self._execute(config, tensor)
        times = []
        for _ in range(REPETITIONS):
            torch.cuda.synchronize()
            self.group.barrier()
            start = time.perf_counter()
            graph.replay()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / each)
        return times

    def _seconds(self, config: Config, tensor: torch.Tensor) -> float:
        """What all ranks agree on: the mean of their medians. The timings are summed by an
        algorithm that is not being measured."""
        times = self._replays(config, tensor) if tensor.is_cuda else self._calls(config, tensor)
        total = torch.tensor([statistics.median(times)], dtype=torch.float64)  # on the CPU
        self._execute(Config(self.algorithms["default_allreduce_packet"]), total)
        return float(total) / self.group.nranks

    def _tune(self) -> None:
        capsule = mscclpp.RawGpuBuffer(SIZES[-1]).to_dlpack(data_type=str(torch.float16))
        buffer = torch.utils.dlpack.from_dlpack(capsule).to(self.device)
        shapes = [(0, 0), *(itertools.product(BLOCKS, THREADS) if buffer.is_cuda else ())]
        for size in SIZES:
            tensor = buffer[: size // buffer.element_size()]
            seconds = {}
            for name, (least, most) in CANDIDATES.items():
                for shape in shapes if least <= size <= most else ():
                    config = Config(self.algorithms[name], *shape)
                    seconds[config] = self._seconds(config, tensor)
            self.best[size] = min(seconds, key=seconds.__getitem__)

    def get_tuned_config(self, size: int) -> Config:
        """Of the next size that was measured, or of the last one."""
        return self.best[next((known for known in SIZES if known >= size), SIZES[-1])]

    def all_reduce(self, tensor: torch.Tensor) -> None:
        self._execute(self.get_tuned_config(tensor.nbytes), tensor)


def own_device() -> torch.device:
    """Of this process; ranks share GPUs where there are too few."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


def main() -> None:
    device = own_device()
    with mscclpp.CommGroup() as group:
        comm = CustomizedComm(group, device)
        for count in (1, 1000, 2_000_001):
            tensor = (torch.arange(count) % 5 + group.my_rank).to(device, torch.float32)
            comm.all_reduce(tensor)
            expected = group.nranks * (torch.arange(count) % 5)
            expected += group.nranks * (group.nranks - 1) // 2
            torch.testing.assert_close(tensor.cpu(), expected.to(torch.float32), rtol=0, atol=0)
        lines = [
            f"{size:>8} bytes: {algorithm.name}" + (f", {blocks} x {threads}" if blocks else "")
            for size, (algorithm, blocks, threads) in comm.best.items()
        ]
        if group.my_rank == 0:
            print("\n".join(lines) + "\n", end="", flush=True)


if __name__ == "__main__":
    main()
