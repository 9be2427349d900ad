"""Algorithms of GPUs by name: what each gives, which is chosen, and what is refused."""

from __future__ import annotations

import torch
from harness import Rank
from harness.failing import error_of

import torchcomms
from gpu_ranks import BACKEND, Make, case
from torchcomms import ReduceOp

COUNT = 5000  # elements of a block
NAMES = {
    "all_reduce": ("one_shot", "two_shot", "lines", "pipeline"),
    "reduce": ("packets", "lines", "pipeline"),
    "reduce_scatter": ("packets", "lines", "pipeline"),
    "all_gather": ("packets", "direct", "copy_engine"),
    "all_to_all": ("packets", "direct", "copy_engine"),
    "broadcast": ("packets", "direct", "copy_engine", "scatter_all_gather"),
}


def _hint(name: str) -> dict[str, str]:
    return {"ctran::algorithm": name}


def _own(rank: int, count: int) -> torch.Tensor:
    return torch.arange(count, dtype=torch.float32) % 1013 + 1000 * rank


def _result(rank: Rank, comm: torchcomms.TorchComm, op: str, name: str) -> tuple[object, object]:
    """What a call that names it gives, and what it should."""
    device, size = rank.device(BACKEND), rank.size
    hints = _hint(name)
    one = _own(rank.rank, COUNT).to(device)
    all_ = _own(rank.rank, COUNT * size).to(device)
    sums = sum(_own(r, COUNT) for r in range(size))
    blocks = sum(_own(r, COUNT * size) for r in range(size))
    assert isinstance(blocks, torch.Tensor)
    part = slice(rank.rank * COUNT, (rank.rank + 1) * COUNT)
    if op == "all_reduce":
        comm.all_reduce(one, ReduceOp.SUM, async_op=False, hints=hints)
        return one, sums
    if op == "reduce":
        comm.reduce(one, 1, ReduceOp.SUM, async_op=False, hints=hints)
        return one, sums if rank.rank == 1 else one
    if op == "reduce_scatter":
        out = torch.zeros_like(one)
        comm.reduce_scatter_single(out, all_, ReduceOp.SUM, async_op=False, hints=hints)
        return out, blocks[part]
    if op == "all_gather":
        out = torch.zeros_like(all_)
        comm.all_gather_single(out, one, async_op=False, hints=hints)
        return out, torch.cat([_own(r, COUNT) for r in range(size)])
    if op == "all_to_all":
        out = torch.zeros_like(all_)
        comm.all_to_all_single(out, all_, async_op=False, hints=hints)
        return out, torch.cat([_own(r, COUNT * size)[part] for r in range(size)])
    comm.broadcast(one, 1, async_op=False, hints=hints)
    return one, _own(1, COUNT)


def _named(rank: Rank) -> None:
    comm = rank.new_comm(BACKEND, "named")
    for op, names in NAMES.items():
        for name in names:
            told = comm.explain(op, 4 * COUNT, dtype=torch.float32, hints=_hint(name))
            assert (told.algorithm, told.why) == (name, "the hint ctran::algorithm")
            found, wanted = _result(rank, comm, op, name)
            rank.synchronize(BACKEND)
            assert isinstance(found, torch.Tensor)
            assert isinstance(wanted, torch.Tensor)
            assert torch.equal(found.cpu(), wanted.cpu()), (op, name)
    comm.finalize()


@case(world=4)
def algorithms_of_gpus_serve_by_name(make: Make) -> None:
    make(4).run(_named)


def _prepared(rank: Rank) -> None:
    comm = rank.new_comm(BACKEND, "prepared")
    for op, names in NAMES.items():
        comm.prepare(op, 4 * COUNT)
        for name in names:
            if name != "scatter_all_gather":  # of more than two ranks
                comm.prepare(op, 4 * COUNT, torch.float32, ReduceOp.SUM, hints=_hint(name))
                found, wanted = _result(rank, comm, op, name)
                rank.synchronize(BACKEND)
                assert isinstance(found, torch.Tensor)
                assert isinstance(wanted, torch.Tensor)
                assert torch.equal(found.cpu(), wanted.cpu()), (op, name)
    for wrong in ("all_shrink", "send"):
        error_of(lambda op=wrong: comm.prepare(op, 8), ValueError)
    error = error_of(lambda: comm.prepare("all_reduce", 8, hints=_hint("ring")), ValueError)
    assert "'ring'" in str(error)
    comm.finalize()


@case(world=2)
def algorithms_are_prepared(make: Make) -> None:
    make(2).run(_prepared)


def _chosen(rank: Rank) -> None:
    comm = rank.new_comm(BACKEND, "chosen")
    for op, names in NAMES.items():
        told = comm.explain(op, 4 * COUNT)
        assert {one.algorithm for one in told.alternatives} == set(names)
        assert all(one.sizes and one.predicted_us is None for one in told.alternatives)
        assert "by size" in told.why
    for nbytes, name in (
        (0, "one_shot"),
        (512 << 10, "two_shot"),
        (1 << 20, "lines"),
        (64 << 20, "pipeline"),
    ):
        told = comm.explain("all_reduce", nbytes, dtype=torch.float32)
        assert told.algorithm == name, told
        assert name in str(told)
    large = {one.algorithm: one for one in told.alternatives}
    assert "packets" in large["one_shot"].why_not
    assert "bytes" in large["lines"].why_not
    assert large["pipeline"].why_not == ""
    assert comm.explain("barrier", 0).algorithm == "packets"
    broadcast = comm.explain("broadcast", 8 << 20)
    assert broadcast.algorithm == "direct"
    assert any("two ranks" in one.why_not for one in broadcast.alternatives)
    comm.finalize()


@case(world=2)
def algorithms_of_gpus_are_explained(make: Make) -> None:
    make(2).run(_chosen)


def _refused(rank: Rank) -> None:
    for wanted in ("all_reduce=ring", "ring"):
        text = str(error_of(lambda w=wanted: rank.new_comm(BACKEND, "no", hints=_hint(w))))
        assert "'ring'" in text, text
        assert "one_shot" in text, text
    comm = rank.new_comm(BACKEND, "refused")
    tensor = torch.ones(1 << 20, device=rank.device(BACKEND))
    for wanted, why in (
        ("all_reduce=ring", "'ring'"),
        ("ring", "'ring'"),
        ("one_shot", "packets"),
        ("all_reduce=one_shot", "packets"),
        ("all_reduce=copy_engine", "'copy_engine'"),
    ):
        hints = _hint(wanted)
        error = error_of(
            lambda h=hints: comm.all_reduce(tensor, ReduceOp.SUM, async_op=False, hints=h)
        )
        assert why in str(error), error
        error = error_of(
            lambda h=hints: comm.explain("all_reduce", tensor.nbytes, hints=h), ValueError
        )
        assert why in str(error), error
    error = error_of(lambda: comm.set_hints(_hint("all_reduce=ring")))
    assert "'ring'" in str(error)
    # The communicator is as it was; a name for other collectives is none for this one.
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False, hints=_hint("copy_engine"))
    rank.synchronize(BACKEND)
    assert (tensor.cpu() == rank.size).all()
    comm.finalize()


@case(world=2)
def algorithms_that_gpus_lack_are_refused(make: Make) -> None:
    make(2).run(_refused)
