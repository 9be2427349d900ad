"""Process groups, on communicators of torchcomms or torch's own."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import torchcomms
from torchcomms import _c10d
from torchcomms._comms import TorchComm, _BackendWrapper

Group = dist.ProcessGroup | None

# The device of a backend that is named without one.
_DEVICES = {
    "ctran": "cpu",
    "fake": "cpu",
    "gloo": "cpu",
    "hccl": "mtia",
    "nccl": "cuda",
    "ncclx": "cuda",
    "rccl": "cuda",
    "rcclx": "cuda",
    "xccl": "xpu",
}
# Under these names torch knows our backends, as it may have others of the plain names.
_PREFIX = "torchcomms_"
_ALIASES: dict[str, str] = {}  # of those names, what they stand for

# What get_comm() has given out, which is one object as long as the group is there: functions that
# are differentiated or compiled know communicators by it.
_comms: weakref.WeakKeyDictionary[dist.ProcessGroup, dict[torch.device, TorchComm]] = (
    weakref.WeakKeyDictionary()
)


def torchcomms_is_enabled() -> bool:
    """Whether the default group is made of communicators of torchcomms."""
    return dist.is_initialized() and _is_ours(c10d._get_default_group())


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: dist.Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: torch.device | None = None,
    use_torchcomms: bool = False,
) -> None:
    """Makes the default group, as torch.distributed.init_process_group does.

    Args:
        backend: "nccl", "gloo", "ctran", ... or one for each device: "cpu:ctran,cuda:nccl".
        pg_options: with torchcomms the hints: a mapping, or an object with `hints`.
        use_torchcomms: whether the group, and those made of it, are of torchcomms.

    Raises:
        ValueError: no backend is named.
    """
    if backend is None:
        raise ValueError("backend must be specified")
    if use_torchcomms:
        backend = _ours(backend, device_id)
    options: dict[str, Any] = {} if device_id is None else {"device_id": device_id}
    dist.init_process_group(
        backend,
        init_method,
        timeout,
        world_size,
        rank,
        store,
        group_name,
        pg_options,
        **options,
    )


def destroy_process_group(group: Group = None) -> None:
    """Ends a group, by default all of them. Works that are not waited for are completed first."""
    dist.destroy_process_group(group)


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: torch.device | None = None,
) -> Any:
    """A group of these ranks of the default one, as torch.distributed.new_group makes it.

    By default with the default group's backend. Every rank calls it, or with
    `use_local_synchronization` every member.
    """
    if backend is not None and torchcomms_is_enabled():
        backend = _ours(backend, device_id)
    options: dict[str, Any] = {} if device_id is None else {"device_id": device_id}
    return dist.new_group(
        list(ranks) if ranks is not None else None,
        timeout,
        backend,
        pg_options,
        use_local_synchronization,
        group_desc,
        **options,
    )


def split_group(
    parent_pg: Group = None,
    split_ranks: list[list[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> Any:
    """Groups of some ranks of `parent_pg`, by default of the default one.

    Args:
        split_ranks: for each new group its ranks, counted in the parent. The same on every rank of
            the parent, all of which call it. None: one group of all of them.
        backend: of the new groups; by default the parent's.

    Returns:
        This rank's group; GroupMember.NON_GROUP_MEMBER if it is in none.
    """
    parent = parent_pg or c10d._get_default_group()
    members = dist.get_process_group_ranks(parent)
    if split_ranks is None:
        split_ranks = [list(range(len(members)))]
    if not split_ranks:
        raise ValueError("split_ranks cannot be empty")
    flat = [rank for group in split_ranks for rank in group]
    if len(set(flat)) != len(flat) or any(not 0 <= rank < len(members) for rank in flat):
        raise ValueError(f"split_ranks must be ranks of the parent, each once: {split_ranks}")
    own = next((group for group in split_ranks if parent.rank() in group), None)
    if own is None:
        # Torch counts the groups for their names; all ranks have to have the same number.
        c10d._process_group_name(split_ranks[0], True)
        return dist.GroupMember.NON_GROUP_MEMBER
    backend = backend or dist.get_backend_config(parent)
    if torchcomms_is_enabled():
        backend = _ours(backend, None)
    order: dict[str, Any] = {}
    if "sort_ranks" in inspect.signature(dist.new_group).parameters:
        order["sort_ranks"] = False
    elif own != sorted(own):
        raise ValueError(f"this version of torch has the ranks of a group in rising order: {own}")
    return dist.new_group(
        [members[rank] for rank in own],
        timeout,
        backend,
        pg_options,
        use_local_synchronization=True,
        group_desc=group_desc,
        **order,
    )


def get_backend(group: Group = None) -> str:
    """The name of the backend: "ctran", whoever carries it out."""
    name = str(dist.get_backend(group))
    for alias in sorted(_ALIASES, key=len, reverse=True):
        name = name.replace(alias, _ALIASES[alias])
    return name


def get_comm(group: Group = None, device: torch.device | str | None = None) -> TorchComm:
    """The communicator of a group, for tensors of `device`.

    Raises:
        RuntimeError: the group is not of torchcomms.
    """
    group = group or c10d._get_default_group()
    place = _place_of(group, device)
    backend: Any = group._get_backend(place)
    if not isinstance(backend, _BackendWrapper):
        raise RuntimeError(
            "this group is torch's own: make it with init_process_group(..., use_torchcomms=True)"
        )
    return _comms.setdefault(group, {}).setdefault(place, backend.get_comm())


def get_mem_allocator(group: Group, device: torch.device) -> Any:
    """The allocator of memory that the group's backend for `device` likes best."""
    return _backend_of(group, device).mem_allocator


def register_mem_pool(group: Group, device: torch.device, pool: Any) -> None:
    """Makes the group's backend for `device` know all memory of a torch.cuda.MemPool."""
    _backend_of(group, device).register_mem_pool(pool)


def new_window(group: Group = None, backend: str | None = None) -> Any:
    """A window of the group's communicator.

    Args:
        backend: "device:backend" or a device, to choose one of several.
    """
    device = backend.split(":")[0] if backend and (":" in backend) else None
    if backend and device is None:
        device = _DEVICES.get(backend, backend)
    comm: Any = get_comm(group, device)
    return comm.new_window()


def _place_of(group: dist.ProcessGroup, device: torch.device | str | None) -> torch.device:
    devices: Any = group._device_types
    chosen = torch.device(device) if device is not None else devices[0]
    return torch.device(chosen.type)


def _backend_of(group: Group, device: torch.device | str | None) -> Any:
    group = group or c10d._get_default_group()
    return group._get_backend(_place_of(group, device))


def _is_ours(group: dist.ProcessGroup) -> bool:
    devices: Any = group._device_types
    return any(isinstance(group._get_backend(device), _BackendWrapper) for device in devices)


def _ours(backend: str, device_id: torch.device | None) -> str:
    """The backend's name, or those for several devices, as torch shall know them."""
    named = []
    for part in backend.lower().split(","):
        given, _, name = part.strip().rpartition(":")
        name = name.removeprefix(_PREFIX)
        if given:
            name = name.removesuffix(f"_{given}")
        usual = _DEVICES.get(name)
        device = given or usual or (device_id.type if device_id is not None else "cpu")
        if not torchcomms.is_backend_built(name):
            known = ", ".join(torchcomms.built_backends())
            raise ValueError(f"torchcomms has no backend '{name}' here; it has {known}")
        alias = _PREFIX + name if device == usual else f"{_PREFIX}{name}_{device}"
        _ALIASES[alias] = name
        if alias.upper() not in dist.Backend._plugins:
            _c10d.register_backend(alias, [device], backend=name)
        named.append(f"{given}:{alias}" if given else alias)
    return ",".join(named)
