"""Meshes of torch.distributed over communicators of ours."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from harness import Rank, Ranks
from harness.groups import process_group

import torchcomms

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
        for dim, group in [
            ("outer", mesh.get_group("outer")),
            ("inner", mesh.get_group("inner")),
            ("all", flat.get_group()),
        ]:
            assert group.group_name == dim
            assert torch.distributed.distributed_c10d._world.pg_to_tag[group] == f"ptd:{dim}"
    finally:
        dist.destroy_process_group()


def test_two_dimensions(ranks: MakeRanks) -> None:
    ranks(4).run(of_two_dimensions)


def flattens_the_first_two(rank: Rank) -> None:
    from torchcomms import device_mesh

    world = rank.new_comm("ctran", "cube")
    a, b, c = (
        world.split(rank_groups=groups, name=name)
        for name, groups in (
            ("a", [[0, 2], [1, 3]]),
            ("b", [[0], [1], [2], [3]]),
            ("c", [[0, 1], [2, 3]]),
        )
    )
    assert a is not None
    assert b is not None
    assert c is not None
    mesh = device_mesh.init_device_mesh((a, b, c), ("a", "b", "c"), _global_comm=world)
    try:
        mine = [0, 2] if rank.rank % 2 == 0 else [1, 3]
        ab = world.split(rank_groups=[[0, 2], [1, 3]], name="ab")
        assert ab is not None
        flat = device_mesh._flatten_with_comm(mesh["a", "b"], "ab", ab, mine)
        assert flat.mesh.tolist() == mine
        assert mesh["ab"].mesh.tolist() == mine
        assert summed(rank, mesh["ab"].get_group()) == sum(mine)
    finally:
        dist.destroy_process_group()


def test_dimensions_that_are_not_the_last_are_flattened(ranks: MakeRanks) -> None:
    ranks(4).run(flattens_the_first_two)


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


def heard(comm: torchcomms.TorchComm) -> list[str]:
    """The operations that it is asked for from now on."""
    names: list[str] = []
    comm.register_pre_hook(lambda name, *_: names.append(name.name))
    return names


def beside_a_default_group(rank: Rank) -> None:
    from torchcomms import device_mesh

    with process_group(rank, "gloo"):
        world = dist.group.WORLD
        comm = rank.new_comm("ctran", "same size")
        mesh = device_mesh.init_device_mesh((comm,), ("data",))
        assert mesh.get_group() is not world
        assert dist.group.WORLD is world
        assert mesh.get_group().group_name == "data"
        names = heard(comm)
        assert summed(rank, mesh.get_group()) == 6
        assert names == ["all_reduce"]
        # Of some of its ranks, in another order.
        part = comm.split([3, 1], "part") if rank.rank % 2 else comm.split([], "part")
        if part is not None:
            mesh = device_mesh.init_device_mesh((part,), ("odd",))
            assert mesh.mesh.tolist() == [3, 1]
            assert summed(rank, mesh.get_group()) == 4
            assert dist.get_group_rank(mesh.get_group(), 3) == 0


def test_beside_a_default_group(ranks: MakeRanks) -> None:
    ranks(4).run(beside_a_default_group)


def one_after_another(rank: Rank) -> None:
    from torchcomms import device_mesh

    try:
        first = rank.new_comm("ctran", "first")
        mesh = device_mesh.init_device_mesh((first,), ("data",))
        assert mesh.get_group() is dist.group.WORLD
        again = device_mesh.init_device_mesh((first,), ("data",))
        assert again.get_group() is mesh.get_group()
        other = device_mesh.init_device_mesh((rank.new_comm("ctran", "other"),), ("data",))
        assert other.get_group().group_name == "data_1"
        assert summed(rank, other.get_group()) == 1
        first.finalize()
        second = rank.new_comm("ctran", "second")
        names = heard(second)
        mesh = device_mesh.init_device_mesh((second,), ("data",))
        assert mesh.get_group().group_name == "data"
        assert mesh.get_group() is dist.group.WORLD
        assert summed(rank, mesh.get_group()) == 1
        assert names == ["all_gather_single", "all_reduce"]
        assert summed(rank, other.get_group()) == 1
    finally:
        dist.destroy_process_group()


def test_one_after_another(ranks: MakeRanks) -> None:
    ranks(2).run(one_after_another)
