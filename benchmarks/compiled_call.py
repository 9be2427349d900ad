"""What a call of compiled code costs whose graph has the name of a communicator, or itself.

    python benchmarks/compiled_call.py                                    # its name
    TORCHCOMMS_PATCH_FOR_COMPILE=0 python benchmarks/compiled_call.py     # itself (torch 2.15)

Prints the least of some averages, in microseconds, of one rank with nobody to wait for.
"""

import time

import torch

import torchcomms
import torchcomms.functional  # defines the operations

ROUNDS, CALLS = 10, 300


def main() -> None:
    comm = torchcomms.new_comm("ctran", torch.device("cpu"), name="measured")
    all_reduce = torch.ops.torchcomms.torchcomm_all_reduce

    @torch.compile(fullgraph=True)
    def step(comm: torchcomms.TorchComm, x: torch.Tensor) -> torch.Tensor:
        return all_reduce(comm, x + 1, "SUM", False, None, 0)

    x = torch.ones(8)
    averages = []
    with torch.no_grad():
        step(comm, x)
        for _ in range(ROUNDS):
            start = time.perf_counter()
            for _ in range(CALLS):
                step(comm, x)
            averages.append((time.perf_counter() - start) / CALLS * 1e6)
    print(f"torch {torch.__version__}: {min(averages):.1f} us a call")


if __name__ == "__main__":
    main()
