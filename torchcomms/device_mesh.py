"""torch.distributed.DeviceMesh over communicators of ours."""

from __future__ import annotations

import copy
import itertools
import sys
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from torchcomms._comms import TorchComm, _BackendWrapper

__all__ = ["init_device_mesh"]

c10d: Any = distributed_c10d  # its tables are not public


def init_device_mesh(
    mesh_dim_comms: tuple[TorchComm, ...],
    mesh_dim_names: tuple[str, ...],
    _global_comm: TorchComm | None = None,
) -> dist.DeviceMesh:
    """A mesh whose dimensions are communicators. Collective over `_global_comm`.

    Each communicator becomes a process group of torch.distributed, named after its dimension. A
    name that another group has gets a number. Where there is no default group, or only one whose
    communicator has been finalized, that of all ranks becomes it; the ranks in the mesh are those
    in the default group.

    Args:
        mesh_dim_comms: for each dimension the communicator of this rank's line along it; its ranks
            are the positions in the mesh.
        mesh_dim_names: the names of the dimensions.
        _global_comm: of all ranks of the mesh; needed when there are several dimensions.

    Raises:
        RuntimeError: several dimensions without `_global_comm`, or communicators that do not make a
            mesh.
        ValueError: as many names as communicators are needed, all different, and at least one.
    """
    comms, names = tuple(mesh_dim_comms), tuple(mesh_dim_names)
    if not comms or len(comms) != len(names):
        raise ValueError(f"got {len(comms)} communicators and {len(names)} names of dimensions")
    if len(set(names)) < len(names):
        raise ValueError(f"two dimensions have the same name: {names}")
    if _global_comm is None:
        if len(comms) > 1:
            raise RuntimeError(
                f"a mesh of {len(comms)} dimensions needs _global_comm, a communicator of all ranks"
            )
        _global_comm = comms[0]
    default = c10d._world.default_pg
    if default is not None and _is_over(default):
        _forget(default)
    mesh = _layout(comms, _global_comm)
    if not dist.is_initialized() and len(comms) > 1:
        world = _create_torchcomm_process_group(_global_comm, _free_name("torchcomms_world"))
        c10d._update_default_pg(world)
    place = [comm.get_rank() for comm in comms]
    groups = []
    for dim, comm in enumerate(comms):
        line = mesh.movedim(dim, -1)[tuple(place[:dim] + place[dim + 1 :])].tolist()
        groups.append(_group_of(comm, names[dim], line))
    if not dist.is_initialized():
        c10d._update_default_pg(groups[0])
    device = comms[0].get_device().type
    if len(groups) == 1:
        return dist.DeviceMesh.from_group(groups[0], device, mesh_dim_names=names)
    return dist.DeviceMesh.from_group(groups, device, mesh=mesh, mesh_dim_names=names)


def _layout(comms: tuple[TorchComm, ...], world: TorchComm) -> torch.Tensor:
    """The rank in the default group of every position, as the ranks themselves say; the rank in
    `world` if there is no such group yet."""
    shape = [comm.get_size() for comm in comms]
    rank = dist.get_rank() if dist.is_initialized() else world.get_rank()
    own = torch.tensor([*(comm.get_rank() for comm in comms), rank], device=world.get_device())
    places = own.new_empty(world.get_size(), own.numel())
    world.all_gather_single(places, own, False)
    mesh = torch.full(shape, -1, dtype=torch.int)
    for *position, rank in places.tolist():
        if any(p >= size for p, size in zip(position, shape, strict=True)):
            break
        mesh[tuple(position)] = rank
    if mesh.numel() != world.get_size() or bool((mesh < 0).any()):
        raise RuntimeError(
            f"communicators of {shape} ranks do not make a mesh of {world.get_size()} ranks: each "
            "rank has to have a position of its own"
        )
    return mesh


def _comm_of(group: Any) -> TorchComm | None:
    """The communicator of a group of ours."""
    for device in group._device_types:
        backend = group._get_backend(device)
        if isinstance(backend, _BackendWrapper):
            return backend.get_comm()
    return None


def _is_over(group: Any) -> bool:
    """Whether its communicator has been finalized."""
    comm = _comm_of(group)
    return comm is not None and comm._is_finalized()


def _forget(group: Any) -> None:
    """Takes a group whose communicator has been finalized out of torch.distributed."""
    world: Any = c10d._world
    for table in (
        world.pg_map,
        world.pg_names,
        world.pg_group_ranks,
        world.pg_backend_config,
        world.pg_to_tag,
        world.pg_coalesce_state,
    ):
        table.pop(group, None)
    for groups in world.tags_to_pg.values():
        if group in groups:
            groups.remove(group)
    if world.default_pg is group:
        c10d._update_default_pg(None)
    c10d._unregister_process_group(group.group_name)


def _named(name: str) -> Any:
    """The group that has the name; None if it is free."""
    return next(
        (group for group, of_group in c10d._world.pg_names.items() if of_group == name), None
    )


def _free_name(name: str) -> str:
    """The name, or with a number where a group has it whose communicator is in use."""
    free = name
    for number in itertools.count(1):
        group = _named(free)
        if group is not None and _is_over(group):
            _forget(group)
            group = None
        if group is None:
            break
        free = f"{name}_{number}"
    return free


def _group_of(comm: TorchComm, dim: str, ranks: list[int]) -> dist.ProcessGroup:
    """The group of a dimension: there is one for a communicator and a name.

    Args:
        ranks: those of `comm`, in the default group.
    """
    for group, tag in c10d._world.pg_to_tag.items():
        if tag == f"ptd:{dim}" and _comm_of(group) is comm:
            return group  # type: ignore[no-any-return]
    return _create_torchcomm_process_group(
        comm, _free_name(dim), global_ranks_mapping=dict(enumerate(ranks)), _tag=f"ptd:{dim}"
    )


def _create_torchcomm_process_group(
    comm: TorchComm,
    group_name: str,
    backend_str: str = "torchcomm",
    global_ranks_mapping: dict[int, int] | None = None,
    _tag: str | None = None,
) -> dist.ProcessGroup:
    """A process group over a communicator, known to torch.distributed by `group_name`.

    Args:
        global_ranks_mapping: the rank in the default group of each rank of `comm`; by default the
            same.
        _tag: what torch.distributed finds it by; by default made of the name.
    """
    store = comm.get_options().store or dist.HashStore()
    group = dist.ProcessGroup(store, comm.get_rank(), comm.get_size())
    kind = dist.ProcessGroup.BackendType.CUSTOM
    group._set_default_backend(kind)
    group._register_backend(comm.get_device(), kind, _BackendWrapper(comm))
    group._set_group_name(group_name)  # type: ignore[arg-type]
    group._set_group_desc(backend_str)
    mapping = global_ranks_mapping or {rank: rank for rank in range(comm.get_size())}

    world: Any = c10d._world
    tag = _tag or f"ptd:{group_name}"
    world.pg_map[group] = (backend_str, store)
    world.pg_names[group] = group_name
    world.pg_backend_config[group] = f"{comm.get_device().type}:{backend_str}"
    world.pg_group_ranks[group] = {of_world: of_comm for of_comm, of_world in mapping.items()}
    world.tags_to_pg.setdefault(tag, []).append(group)
    world.pg_to_tag[group] = tag
    c10d._register_process_group(group_name, group)
    return group


def _as_part(
    flat: dist.DeviceMesh, root: Any, mesh: Any, global_ranks: list[int], layout: Any
) -> dist.DeviceMesh:
    """`flat` as the root mesh looks it up: its layout counts in the ranks of the root."""
    if not hasattr(root, "_rank_map"):
        return flat
    if layout is None and mesh.mesh.flatten().tolist() == list(global_ranks):
        own = mesh._layout
        layout = type(own)([own.collapse()]) if hasattr(own, "collapse") else own.coalesce()
    if layout is None:
        return flat
    part: Any = copy.copy(flat)
    part._layout = layout
    part._rank_map = root._rank_map
    return cast(dist.DeviceMesh, part)


def _flatten_with_comm(
    mesh: dist.DeviceMesh,
    mesh_dim_name: str,
    comm: TorchComm,
    global_ranks: list[int],
    layout: Any = None,
) -> dist.DeviceMesh:
    """A dimension that stands for several of `mesh`, over a communicator of their ranks.

    Args:
        mesh_dim_name: its name.
        global_ranks: the ranks of `comm` in the default group.
        layout: what newer torch keeps of the flattened dimensions; not needed.
    """
    group = _group_of(comm, mesh_dim_name, global_ranks)
    flat = dist.DeviceMesh.from_group(group, mesh.device_type, mesh_dim_names=(mesh_dim_name,))
    of_flat: Any = flat
    if hasattr(getattr(flat, "_layout", None), "coalesce"):
        # Torch 2.11 wants numbers for size and stride of a flattened dimension, not tuples.
        of_flat._layout = of_flat._layout.coalesce()
    of_mesh: Any = mesh
    root: Any = of_mesh._get_root_mesh() if hasattr(mesh, "_get_root_mesh") else None
    if hasattr(root, "_flatten_mapping"):
        root._flatten_mapping[mesh_dim_name] = _as_part(flat, root, mesh, global_ranks, layout)
    else:  # older torch keeps them in one place for all meshes
        resources: Any = sys.modules[type(mesh).__module__]._mesh_resources
        root = resources.get_root_mesh(mesh)
        resources.root_to_flatten_mapping.setdefault(root, {})[mesh_dim_name] = flat
    return flat
