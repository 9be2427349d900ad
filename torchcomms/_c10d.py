"""Backends of this package for torch.distributed.

    torch.distributed.init_process_group(backend="ctran")
    torch.distributed.init_process_group(backend="cpu:ctran,cuda:nccl")
    torch.distributed.init_process_group(backend="cpu:gloo,cuda:ncclx")

How torch learns of them: from 2.14 on by the entry point `torch.distributed.backends`; before,
by `import torchcomms`. From 2.11 on `import torch` imports this package itself, half-way through
its own start, when there is nothing to register with yet; then it is done as soon as there is.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch

# The backends that torch.distributed knows by these names, and the devices they serve.
_DEVICES = {"ctran": ["cpu"], "ncclx": ["cuda"]}


def register_backend(name: str, devices: list[str], backend: str | None = None) -> None:
    """Makes a backend of torchcomms known to torch.distributed.

    Args:
        name: what `init_process_group` and `new_group` call it.
        devices: the types of the devices whose tensors it takes, as "cpu".
        backend: its name in torchcomms, as for `new_comm`; by default the same.
    """

    def create(options: Any, backend_options: Any) -> Any:
        device = _device_of(options.store, options.group_rank) or devices[0]
        return _create(backend or name, device, options, backend_options)

    _backends().register_backend(name, create, extended_api=True, devices=devices)


def register() -> None:
    """What the entry point names: makes our backends known, unless they are."""
    for name, devices in _DEVICES.items():
        if name.upper() not in _backends()._plugins:
            register_backend(name, devices)


def hints_of(backend_options: Any) -> dict[str, str]:
    """The hints in what a caller passed as `pg_options`: a mapping, or an object with `hints`."""
    hints = getattr(backend_options, "hints", backend_options)
    if isinstance(hints, Mapping):
        return {str(key): str(value) for key, value in hints.items()}
    return {}


def _is_asked_to_reconfigure(*options: Any) -> bool:
    """Whether one of them says so; that of torch before 2.15 cannot."""
    return any(getattr(one, "enable_reconfigure", False) for one in options)


def _backends() -> Any:
    """torch.distributed.Backend; None while torch has not come that far."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    return getattr(module, "Backend", None)


def _device_of(store: Any, rank: int) -> str | None:
    """The type of device in "cuda:ctran". Torch tells it by the prefix of the store alone, which
    shows in the key that what it stores has underneath."""
    underneath = getattr(store, "underlying_store", None)
    if underneath is None:
        return None
    key = f"torchcomms/device/{rank}"
    store.set(key, "")
    return next((kind for kind in ("cpu", "cuda") if underneath.check([f"{kind}//{key}"])), None)


def _place_of(device: str) -> torch.device:
    """That device; of several, the one that is current."""
    module = getattr(torch, device)
    if device != "cpu" and module.is_available():
        return torch.device(device, module.current_device())
    return torch.device(device)


def _create(backend: str, device: str, options: Any, backend_options: Any) -> Any:
    """The backend of a new ProcessGroup. Collective over its ranks."""
    from torchcomms._comms import CommOptions, _BackendWrapper, new_comm

    place = CommOptions()
    place.rank, place.size = options.group_rank, options.group_size
    comm = new_comm(
        backend,
        _place_of(device),
        options.group_id,
        options=place,
        store=options.store,
        timeout=options.timeout,
        hints=hints_of(backend_options),
        enable_reconfigure=_is_asked_to_reconfigure(options, backend_options),
    )
    return _BackendWrapper(comm)


class _WhenReady:
    """A finder of sys.meta_path that finds no module: torch asks it for every one that it imports,
    until it has come so far that backends can be registered."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if _backends() is None:
            return
        # Another list: the caller goes through this one.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not self]
        register()


def register_when_ready() -> None:
    """Registers now if torch.distributed has come so far, else as soon as it has."""
    if _backends() is not None:
        register()
    elif "torch.distributed.distributed_c10d" in sys.modules:
        sys.meta_path.insert(0, _WhenReady())
