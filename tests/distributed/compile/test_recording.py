"""Methods outside compiled code under TORCHCOMMS_PATCH_FOR_COMPILE=1: they record gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.programs import run_ranks

START = """
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torchcomms
from torchcomms import ReduceOp

rank, size = int(sys.argv[1]), int(sys.argv[2])
options = torchcomms.CommOptions()
options.rank, options.size = rank, size
comm = torchcomms.new_comm(
    "ctran", "cpu", "main", store=dist.FileStore(sys.argv[3], size), options=options,
    timeout=timedelta(seconds=60),
)
weight = torch.tensor([1.0, 2.0, 3.0, 4.0]) * (rank + 1)
weight.requires_grad_()


def gradient(value):
    (got,) = torch.autograd.grad(value.sum(), weight)
    return got.tolist()
"""

RECORDED = """
ones, all_of = [1.0] * 4, [float(size)] * 4
total = [1.0 * 3, 2.0 * 3, 3.0 * 3, 4.0 * 3]

x = weight * 2
y = comm.all_reduce(x, ReduceOp.SUM, False)
assert y.tolist() == x.tolist() == [2 * t for t in total]
assert gradient(y * 3) == [12.0] * 4  # of the result
assert gradient(comm.all_reduce(x := weight * 2, ReduceOp.SUM, False) * 0 + x) == [4.0] * 4

b = comm.all_reduce(weight * 2, ReduceOp.SUM, async_op=True)
assert isinstance(b, torchcomms.functional.AsyncTensor)
b.sum().backward()
assert weight.grad.tolist() == [4.0] * 4
x = weight * 2
work = comm.all_reduce(x, ReduceOp.SUM, async_op=True)
work.wait()
assert x.tolist() == [2 * t for t in total]  # the tensor is the result
assert gradient(x) == [4.0] * 4
b = comm.all_reduce(weight * 2, ReduceOp.SUM, async_op=True)
assert gradient(comm.all_reduce(b, ReduceOp.SUM, True) + 1) == [8.0] * 4  # one from another

# The gradient of MAX needs the input, which the method overwrites.
assert gradient(comm.all_reduce(weight * 1, ReduceOp.MAX, False)) == [2.0 * rank] * 4
leaf = weight.detach().clone().requires_grad_()
y = comm.all_reduce(leaf, ReduceOp.SUM, False)
assert leaf.tolist() == total
y.sum().backward()
assert leaf.grad.tolist() == all_of

out = torch.empty(4 * size)
assert gradient(comm.all_gather_single(out, weight * 1, False)) == all_of
out = torch.empty(4 * size)
comm.all_gather_single(out, weight * 1, False)
assert gradient(out) == all_of
outs = [torch.empty(4) for _ in range(size)]
got = comm.all_gather(outs, weight * 1, False)
assert gradient(got[0]) == ([2.0] * 4 if rank == 0 else [0.0] * 4)
works = comm.all_gather([torch.empty(4) for _ in range(size)], weight * 1, True)
assert gradient(torch.stack(works.wait())) == all_of
half = torch.empty(2)
assert gradient(comm.reduce_scatter_single(half, weight * 1, ReduceOp.SUM, False)) == ones
parts = list((weight * 1).chunk(2))
assert gradient(comm.reduce_scatter(half.detach().clone(), parts, ReduceOp.AVG, False)) == [0.5] * 4
assert gradient(comm.all_to_all_single(torch.empty(4), weight * 1, False)) == ones
rows = [1, 3] if rank == 0 else [3, 1]
got = comm.all_to_all_v_single(torch.empty(4), weight * 1, rows, rows, async_op=False)
assert gradient(got) == ones
outs = [torch.empty(2) for _ in range(size)]
assert gradient(torch.cat(comm.all_to_all(outs, list((weight * 1).chunk(2)), False))) == ones
x = weight * 1
assert gradient(comm.broadcast(x, 0, False)) == ([2.0] * 4 if rank == 0 else [0.0] * 4)

# Without gradients they are what they are.
with torch.no_grad():
    work = comm.all_reduce(weight * 1, ReduceOp.SUM, False)
assert isinstance(work, torchcomms.TorchWork)
assert isinstance(comm.all_reduce(torch.ones(2), ReduceOp.SUM, True), torchcomms.TorchWork)
comm.barrier(False)
try:
    comm.all_reduce(weight * 1)
except TypeError as error:
    assert "op" in str(error)
comm.finalize()
"""

NOT_RECORDED = """
x = weight * 2
work = comm.all_reduce(x, ReduceOp.SUM, False)
assert isinstance(work, torchcomms.TorchWork)
assert gradient(x) == [2.0] * 4
comm.finalize()
"""


@pytest.mark.parametrize(("program", "value"), [(RECORDED, "1"), (NOT_RECORDED, "")])
def test_methods(program: str, value: str, tmp_path: Path) -> None:
    for ended in run_ranks(START + program, 2, tmp_path, TORCHCOMMS_PATCH_FOR_COMPILE=value):
        assert ended.code == 0, ended.err
