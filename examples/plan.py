#!/usr/bin/env python3
"""An all-reduce of one's own: written, proved, simulated, drawn, and then serving all_reduce.

torchrun --nproc-per-node 4 examples/plan.py          # with the CPUs
torchrun --nproc-per-node 4 examples/plan.py cuda     # with a GPU for each rank
"""

import os
import sys

import torch

from torchcomms import ReduceOp, new_comm, plan


def ring(ranks: int) -> plan.Plan:
    """Reduce-scatter, then all-gather, around a ring: a piece of the data for each rank."""
    b = plan.Builder("my_ring", "all_reduce", ranks, chunks=ranks)
    links = [b.link(b[r], b[r + 1]) for r in range(ranks)]
    for r in range(ranks):
        me, right, left = b[r], links[r], links[r - 1]
        for step in range(ranks):
            piece = (r - 1 - step) % ranks
            sources = [left, me.input[piece]] if step > 0 else [me.input[piece]]
            me.move(*sources, to=right if step < ranks - 1 else me.output[piece])
        for step in range(ranks):
            piece = (r - step) % ranks
            if step == 0:
                me.move(me.output[piece], to=right)
            else:
                targets = [me.output[piece]] + ([right] if step < ranks - 1 else [])
                me.move(left, to=targets)
    return b.finish()


def main() -> None:
    device = torch.device(sys.argv[1] if len(sys.argv) > 1 else "cpu")
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    comm = new_comm("ctran", device, name="main_comm")
    if comm.get_size() < 2:
        sys.exit("a ring takes two ranks: torchrun --nproc-per-node 4 examples/plan.py")
    mine = ring(comm.get_size())
    assert mine.verify(), mine.verify()
    if comm.get_rank() == 0:
        print(mine.simulate(1 << 20, units=8))
        with open("my_ring.svg", "w") as file:
            file.write(mine.simulate(1 << 20).svg())
    with mine.register("main_comm", prefer=True):
        tensor = torch.arange(10_001, device=device) * (comm.get_rank() + 1)
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    expected = torch.arange(10_001) * sum(range(1, comm.get_size() + 1))
    torch.testing.assert_close(tensor.cpu(), expected, rtol=0, atol=0)
    print(f"[rank {comm.get_rank()}] served by {mine.name}\n", end="", flush=True)
    comm.finalize()


if __name__ == "__main__":
    main()
