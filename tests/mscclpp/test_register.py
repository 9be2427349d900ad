"""Algorithms of users that serve torchcomms, torch.distributed and DDP."""

from __future__ import annotations

import runpy
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import Rank, Ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import mscclpp
from torchcomms import ReduceOp

MakeRanks = Callable[[int], Ranks]
PROGRAMS = Path(__file__).parent / "programs"
STEPS = 4


def two_shot(ranks: int) -> mscclpp.DslAlgorithm:
    write = runpy.run_path(str(PROGRAMS / "all_reduce_two_shot.py"))["program"]
    return mscclpp.compile(write, ranks=ranks)


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(20, 40), nn.GELU(), nn.Linear(40, 5))


def batch(step: int, rank: int) -> torch.Tensor:
    return torch.randn(4, 20, generator=torch.Generator().manual_seed(10 * step + rank))


def trained(network: nn.Module, batches: Callable[[int], list[torch.Tensor]]) -> list[torch.Tensor]:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.2)
    for step in range(STEPS):
        optimizer.zero_grad()
        own = batches(step)
        for one in own:
            (network(one).square().mean() / len(own)).backward()
        optimizer.step()
    return [parameter.detach() for parameter in network.parameters()]


def trains(rank: Rank) -> list[bytes]:
    size = rank.size
    dist.init_process_group("ctran", store=rank.store("ddp"), rank=rank.rank, world_size=size)
    try:
        algorithm = two_shot(size)
        with mscclpp.register(algorithm, prefer=True):
            found = trained(DistributedDataParallel(model()), lambda step: [batch(step, rank.rank)])
            explained = rank.comm("ctran").explain("all_reduce", 4096, torch.float32)
            assert explained.algorithm == f"plan:{algorithm.name}"
    finally:
        dist.destroy_process_group()
    alone = trained(model(), lambda step: [batch(step, r) for r in range(size)])
    for one, other in zip(found, alone, strict=True):
        torch.testing.assert_close(one, other)
    return [parameter.numpy().tobytes() for parameter in found]


@pytest.mark.parametrize("size", [2, 4])
def test_ddp_trains_through_a_program(ranks: MakeRanks, size: int) -> None:
    first, *others = ranks(size).run(trains)
    assert all(other == first for other in others)


def of_one_communicator(rank: Rank) -> None:
    comm, algorithm = rank.comm("ctran"), two_shot(rank.size)
    group = mscclpp.CommGroup.from_comm(comm)
    name = f"plan:{algorithm.name}"

    def served() -> bool:
        return bool(comm.explain("all_reduce", 4096, torch.float32).algorithm == name)

    for where in (comm, group, group.communicator, comm.get_name()):
        with mscclpp.register(algorithm, where, prefer=True):
            assert served()
        assert not served()
    with mscclpp.register(algorithm, "another", prefer=True):
        assert not served()
    with mscclpp.register(algorithm):
        assert not served()  # nobody has asked for it
        mine = torch.full((100,), 1.0 + rank.rank)
        hints = {"ctran::algorithm": name}
        comm.all_reduce(mine, ReduceOp.SUM, async_op=False, hints=hints)
        assert mine.eq(3).all()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_text(algorithm.to_json())
        plan = mscclpp.ExecutionPlan(path, rank.rank)
    with mscclpp.register(plan, comm, prefer=True):
        assert served()
    with pytest.raises(TypeError, match="is no communicator"):
        mscclpp.register(algorithm, 5)
    (packet, *_) = mscclpp.AlgorithmCollectionBuilder().build_default_algorithms()
    with pytest.raises(TypeError, match="is one of the engine's own, which serve already"):
        mscclpp.register(packet)
    with pytest.raises(TypeError, match="is no algorithm"):
        mscclpp.register("two_shot")  # type: ignore[arg-type]


def test_registration_is_of_a_communicator(ranks: MakeRanks) -> None:
    ranks(2).run(of_one_communicator)


def names_what_is_not_registered(rank: Rank) -> None:
    comm = rank.comm("ctran")
    mine = torch.ones(4)
    hints = {"ctran::algorithm": "plan:unknown"}
    with (
        mscclpp.register(two_shot(2), comm),
        pytest.raises(Exception, match="registered") as raised,
    ):
        comm.all_reduce(mine, ReduceOp.SUM, async_op=False, hints=hints)
    assert "'plan:unknown'" in str(raised.value)
    assert "there are: plan:two_shot" in str(raised.value)
    comm.all_reduce(mine, ReduceOp.SUM, async_op=False)
    assert mine.tolist() == [2] * 4


def test_a_hint_that_names_no_registered_plan_is_refused(ranks: MakeRanks) -> None:
    ranks(2).run(names_what_is_not_registered)


def test_a_program_is_compiled_before_it_is_registered() -> None:
    program = runpy.run_path(str(PROGRAMS / "all_reduce_two_shot.py"))["program"](ranks=2)
    with pytest.raises(TypeError, match=r"is not compiled: register mscclpp.compile\(program\)"):
        mscclpp.register(program)
