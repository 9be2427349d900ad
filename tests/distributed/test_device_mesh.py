"""Meshes of torch.distributed over communicators of ours."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from harness import Rank, Ranks

MakeRanks = Callable[[int], Ranks]


def summed(rank: Rank, group: dist.ProcessGroup) -> float:
    value = torch.tensor([float(rank.rank)])
    dist.all_reduce(value, group=group)
    return value.item()


def of_two_dimensions(rank: Rank) -> None:
    from torchcomms import device_mesh

    world = rank.new_comm("ctran", "mesh")
    # Columns first, so that the layout is not the obvious one.
    outer = world.split(rank_groups=[[0, 1], [2, 3]], name="outer")
    inner = world.split(rank_groups=[[0, 2], [1, 3]], name="inner")
    assert outer is not None
    assert inner is not None
    with pytest.raises(RuntimeError, match="needs _global_comm"):
        device_mesh.init_device_mesh((outer, inner), ("outer", "inner"))
    with pytest.raises(ValueError, match="2 communicators and 1 names"):
        device_mesh.init_device_mesh((outer, inner), ("outer",), _global_comm=world)
    with pytest.raises(RuntimeError, match="do not make a mesh of 4 ranks"):
        device_mesh.init_device_mesh((outer, outer), ("a", "b"), _global_comm=world)
    mesh = device_mesh.init_device_mesh((outer, inner), ("outer", "inner"), _global_comm=world)
    try:
        assert mesh.mesh.tolist() == [[0, 2], [1, 3]]
        assert mesh.mesh_dim_names == ("outer", "inner")
        assert summed(rank, mesh.get_group("outer")) == (1 if rank.rank < 2 else 5)
        assert summed(rank, mesh.get_group("inner")) == (2 if rank.rank % 2 == 0 else 4)
        assert mesh["inner"].get_local_rank() == inner.get_rank()
        assert dist.get_world_size() == 4
        assert summed(rank, dist.group.WORLD) == 6  # type: ignore[arg-type]

        from torch.distributed.tensor import Replicate, Shard, distribute_tensor

        values = torch.arange(16.0).view(4, 4)
        sharded = distribute_tensor(values, mesh, [Shard(0), Shard(1)])
        assert torch.equal(
            sharded.redistribute(mesh, [Replicate(), Replicate()]).to_local(), values
        )

        flat = device_mesh._flatten_with_comm(
            mesh,
            "all",
            world.split([0, 2, 1, 3], "flat"),
            [0, 2, 1, 3],  # type: ignore[arg-type]
        )
        assert summed(rank, flat.get_group()) == 6
        assert mesh["all"].mesh.tolist() == [0, 2, 1, 3]
    finally:
        dist.destroy_process_group()


def test_two_dimensions(ranks: MakeRanks) -> None:
    ranks(4).run(of_two_dimensions)


def of_one_dimension(rank: Rank) -> None:
    from torchcomms import device_mesh

    mesh = device_mesh.init_device_mesh((rank.new_comm("ctran", "line"),), ("data",))
    try:
        assert mesh.mesh.tolist() == [0, 1]
        assert summed(rank, mesh.get_group()) == 1
    finally:
        dist.destroy_process_group()


def test_one_dimension(ranks: MakeRanks) -> None:
    ranks(2).run(of_one_dimension)
