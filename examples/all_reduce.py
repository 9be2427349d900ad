#!/usr/bin/env python3
"""Sums a tensor across processes, first synchronously, then asynchronously.

torchrun --nproc-per-node 4 examples/all_reduce.py
"""

import torch

from torchcomms import ReduceOp, new_comm


def tell(rank: int, what: str) -> None:
    # One write per line, so that the lines of several processes do not mix.
    print(f"[rank {rank}] {what}\n", end="", flush=True)


def main() -> None:
    comm = new_comm("ctran", torch.device("cpu"), name="main_comm")
    rank, size = comm.get_rank(), comm.get_size()
    expected = torch.full((1024,), float(sum(range(1, size + 1))))

    # Every rank contributes its rank + 1; when the call returns, the sum is in the tensor.
    tensor = torch.full((1024,), float(rank + 1))
    tell(rank, f"of {size}, sync:  had {tensor[0].item()}")
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    tell(rank, f"of {size}, sync:  sees {tensor[0].item()}")
    torch.testing.assert_close(tensor, expected, rtol=0, atol=0)

    # The call returns at once. The tensor belongs to the operation until wait() returns.
    tensor = torch.full((1024,), float(rank + 1))
    tell(rank, f"of {size}, async: had {tensor[0].item()}")
    work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=True)
    tell(rank, f"of {size}, async: does something else meanwhile")
    work.wait()
    tell(rank, f"of {size}, async: sees {tensor[0].item()}")
    torch.testing.assert_close(tensor, expected, rtol=0, atol=0)

    comm.finalize()


if __name__ == "__main__":
    main()
