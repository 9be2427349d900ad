"""PyTorch's training stacks, each training a small model beside the same model in one process.

Every function here runs on all ranks, with a default process group in place. The data of a step are
the same in both; what each rank takes of them is the stack's affair.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from harness import Rank
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

STEPS = 3
BATCH = 8
WIDTH = 12
# Where models and data are: on GPUs in tests/gpu_ranks/groups.py.
DEVICE = torch.device("cpu")


class Block(nn.Module):
    """A residual layer of a transformer, without the attention."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def new_model(layers: int = 2) -> nn.Sequential:
    torch.manual_seed(7)
    return nn.Sequential(*[Block() for _ in range(layers)], nn.Linear(WIDTH, 3)).to(DEVICE)


def data(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    return (
        torch.randn(BATCH, WIDTH, generator=generator).to(DEVICE),
        torch.randn(BATCH, 3, generator=generator).to(DEVICE),
    )


def own_part(rank: Rank, tensor: Tensor) -> Tensor:
    return tensor.chunk(rank.size)[rank.rank]


def loss_of(output: Tensor, target: Tensor) -> Tensor:
    return torch.nn.functional.mse_loss(output, target)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    # One by one: on GPUs it would take sharded and whole parameters together, which do not mix.
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    part: Callable[[Tensor], Tensor] = lambda tensor: tensor,
) -> None:
    for step in range(STEPS):
        inputs, targets = data(step)
        optimizer.zero_grad()
        loss_of(model(part(inputs)), part(targets)).backward()
        optimizer.step()


def trained_alone(
    layers: int = 2, optimizer: Callable[[nn.Module], torch.optim.Optimizer] = sgd
) -> dict[str, Tensor]:
    model = new_model(layers)
    before = copy.deepcopy(model.state_dict())
    train(model, optimizer(model))
    after = model.state_dict()
    assert all(not torch.equal(before[name], after[name]) for name in after)
    return after


def require_close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5, msg=name)


def require_replicas(rank: Rank, state: dict[str, Tensor]) -> None:
    """The same bits on every rank."""
    for name, value in state.items():
        everywhere = [torch.empty_like(value) for _ in range(rank.size)]
        dist.all_gather(everywhere, value.contiguous())
        assert all(torch.equal(other, value) for other in everywhere), name


def full(state: dict[str, Any]) -> dict[str, Tensor]:
    """Of sharded parameters: whole ones."""
    return {
        name: value.full_tensor() if isinstance(value, DTensor) else value
        for name, value in state.items()
    }


def data_parallel(rank: Rank) -> None:
    model = new_model()
    replica = DistributedDataParallel(model, bucket_cap_mb=0.001, gradient_as_bucket_view=True)
    train(replica, sgd(replica), lambda tensor: own_part(rank, tensor))
    require_close(model.state_dict(), trained_alone())
    require_replicas(rank, model.state_dict())


def data_parallel_with_a_hook(rank: Rank) -> None:
    """A hook that works on the future in Python, as those for compression do."""

    def average(state, bucket):  # type: ignore[no-untyped-def]  # torch compares annotations
        summed = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return summed.then(lambda done: done.value()[0].div_(rank.size))

    model = new_model()
    replica = DistributedDataParallel(model)
    replica.register_comm_hook(None, average)
    train(replica, sgd(replica), lambda tensor: own_part(rank, tensor))
    require_close(model.state_dict(), trained_alone())
    require_replicas(rank, model.state_dict())


def data_parallel_with_sparse_gradients(rank: Rank) -> None:
    torch.manual_seed(3)
    alone = nn.Sequential(nn.Embedding(10, WIDTH, sparse=True), nn.Linear(WIDTH, 3)).to(DEVICE)
    model = copy.deepcopy(alone)
    replica = DistributedDataParallel(model)
    indices = torch.arange(BATCH, device=DEVICE) * 3 % 10
    for parameters, forward, part in [
        (alone.parameters(), alone, lambda tensor: tensor),
        (replica.parameters(), replica, lambda tensor: own_part(rank, tensor)),
    ]:
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(forward(part(indices)), part(data(step)[1])).backward()
            optimizer.step()
    require_close(model.state_dict(), alone.state_dict())
    require_replicas(rank, model.state_dict())


def fully_sharded(rank: Rank) -> None:
    model = new_model()
    mesh = init_device_mesh(DEVICE.type, (rank.size,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, sgd(model), lambda tensor: own_part(rank, tensor))
    state = full(model.state_dict())
    require_close(state, trained_alone())
    require_replicas(rank, state)


def hybrid_sharded(rank: Rank) -> None:
    """Replicas of shards: a mesh of two dimensions."""
    model = new_model()
    mesh = init_device_mesh(DEVICE.type, (2, rank.size // 2), mesh_dim_names=("replicate", "shard"))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, sgd(model), lambda tensor: own_part(rank, tensor))
    state = full(model.state_dict())
    require_close(state, trained_alone())
    require_replicas(rank, state)


def tensor_parallel(rank: Rank) -> None:
    model = new_model()
    mesh = init_device_mesh(DEVICE.type, (rank.size,))
    for layer in model[:-1]:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    train(model, sgd(model))
    state = full(model.state_dict())
    require_close(state, trained_alone())
    require_replicas(rank, state)


def pipeline_parallel(rank: Rank) -> None:
    """One stage per rank, one forward and one backward in turn, more microbatches than stages."""
    whole = new_model(rank.size - 1)
    part = whole[rank.rank]
    stage = PipelineStage(part, rank.rank, rank.size, DEVICE)
    microbatches = BATCH  # of one row
    schedule = Schedule1F1B(stage, microbatches, loss_fn=loss_of)
    optimizer = sgd(part)
    for step in range(STEPS):
        inputs, targets = data(step)
        optimizer.zero_grad()
        if rank.rank == 0:
            schedule.step(inputs)
        elif rank.rank == rank.size - 1:
            losses: list[Tensor] = []
            schedule.step(target=targets, losses=losses)
            assert len(losses) == microbatches
        else:
            schedule.step()
        optimizer.step()
    expected = trained_alone(rank.size - 1)
    prefix = f"{rank.rank}."
    own = {name: value for name, value in expected.items() if name.startswith(prefix)}
    require_close({prefix + name: value for name, value in part.state_dict().items()}, own)


def sharded_optimizer(rank: Rank) -> None:
    def adam(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=0.01)

    model = new_model()
    replica = DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(
        replica.parameters(), optimizer_class=torch.optim.Adam, lr=0.01
    )
    train(replica, optimizer, lambda tensor: own_part(rank, tensor))
    require_close(model.state_dict(), trained_alone(optimizer=adam))
    require_replicas(rank, model.state_dict())
    optimizer.consolidate_state_dict(to=1)
    if rank.rank == 1:
        assert len(optimizer.state_dict()["state"]) == len(list(model.parameters()))


def checkpoint(rank: Rank) -> None:
    """Saved from shards over all ranks, loaded into shards over half of them, twice."""
    folder: list[Any] = [tempfile.mkdtemp() if rank.rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    mesh = init_device_mesh(DEVICE.type, (rank.size,))
    values = torch.arange(8.0 * WIDTH, device=DEVICE).view(8, WIDTH)
    saved = {
        "sharded": distribute_tensor(values, mesh, [Shard(0)]),
        "everywhere": distribute_tensor(values + 1, mesh, [Replicate()]),
        "number": torch.tensor(5),
    }
    dcp.save(saved, checkpoint_id=Path(folder[0]))
    dcp.async_save(saved, checkpoint_id=Path(folder[0]) / "async").result()
    wide = init_device_mesh(DEVICE.type, (2, rank.size // 2), mesh_dim_names=("replicate", "shard"))
    for place in (Path(folder[0]), Path(folder[0]) / "async"):
        zeros = torch.zeros_like(values)
        loaded = {
            "sharded": distribute_tensor(zeros.clone(), wide, [Replicate(), Shard(1)]),
            "everywhere": distribute_tensor(zeros, wide["shard"], [Shard(0)]),
            "number": torch.tensor(0),
        }
        dcp.load(loaded, checkpoint_id=place)
        assert torch.equal(loaded["sharded"].full_tensor(), values)  # type: ignore[attr-defined]
        assert torch.equal(loaded["everywhere"].full_tensor(), values + 1)  # type: ignore[attr-defined]
        assert loaded["number"].item() == 5


def device_mesh(rank: Rank) -> None:
    mesh = init_device_mesh(DEVICE.type, (2, rank.size // 2), mesh_dim_names=("outer", "inner"))
    inner = rank.size // 2
    for name, members in [
        ("outer", [r for r in range(rank.size) if r % inner == rank.rank % inner]),
        ("inner", [r for r in range(rank.size) if r // inner == rank.rank // inner]),
    ]:
        total = torch.tensor([float(rank.rank)], device=DEVICE)
        dist.all_reduce(total, group=mesh.get_group(name))
        assert total.item() == sum(members)
    flat = mesh["outer", "inner"]._flatten("all")
    total = torch.ones(3, device=DEVICE)
    dist.all_reduce(total, group=flat.get_group())
    assert (total == rank.size).all()
