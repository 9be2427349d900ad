"""Collectives of Python objects.

Every function is collective over the ranks of `comm`, but for send and receive. An object travels
as `torch.save` writes it. `weights_only` (the default) reads tensors and plain values only, so that
no sender can make a receiver run code; with `weights_only=False`, and wherever the environment says
TORCHCOMMS_SERIALIZATION=pickle, a receiver trusts its senders.

`timeout` is that of each operation beneath; None is the communicator's.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from torchcomms import _variables
from torchcomms._comms import TorchComm

__all__ = [
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "recv_object_list",
    "scatter_object_list",
    "send_object_list",
]


def all_gather_object(
    comm: TorchComm,
    object_list: list[Any],
    obj: Any,
    timeout: timedelta | None = None,
    weights_only: bool = True,
) -> None:
    """Gives every rank the `obj` of every rank.

    Args:
        object_list: gets them, in the order of ranks; as long as there are ranks.

    Raises:
        ValueError: `object_list` has another length.
        pickle.UnpicklingError: an object needs `weights_only=False`; the text names its rank.
    """
    _require_list("object_list", object_list)
    _require_length("object_list", object_list, comm.get_size())
    data = _encoded(obj, comm)
    sizes = _gathered_sizes(comm, data, timeout)
    parts = [data.new_empty(size) for size in sizes]
    comm.all_gather_v(parts, data, False, timeout=timeout)
    object_list[:] = [_decoded(part, rank, weights_only) for rank, part in enumerate(parts)]


def gather_object(
    comm: TorchComm,
    obj: Any,
    root: int,
    object_gather_list: list[Any] | None = None,
    timeout: timedelta | None = None,
    weights_only: bool = True,
) -> None:
    """Gives rank `root` the `obj` of every rank.

    Args:
        object_gather_list: at the root gets them, in the order of ranks; as long as there are
            ranks. Not looked at elsewhere.

    Raises:
        ValueError: `object_gather_list` is missing at the root, or of another length than the
            number of ranks.
        pickle.UnpicklingError: as in `all_gather_object`.
    """
    is_root = comm.get_rank() == root
    if is_root:
        if object_gather_list is not None:
            _require_list("object_gather_list", object_gather_list)
        _require_length("object_gather_list", object_gather_list, comm.get_size())
    data = _encoded(obj, comm)
    sizes = _gathered_sizes(comm, data, timeout)
    padded = _padded(data, max(sizes))
    parts = [torch.empty_like(padded) for _ in sizes] if is_root else []
    comm.gather(parts, padded, root, False, timeout=timeout)
    if is_root and object_gather_list is not None:
        object_gather_list[:] = [
            _decoded(part[:size], rank, weights_only)
            for rank, (part, size) in enumerate(zip(parts, sizes, strict=True))
        ]


def send_object_list(
    comm: TorchComm, object_list: Sequence[Any], dst: int, timeout: timedelta | None = None
) -> None:
    """Sends the objects to rank `dst`, which calls `recv_object_list` with a list as long."""
    _require_sequence("object_list", object_list)
    sizes, data = _encoded_list(object_list, comm)
    comm.send(sizes, dst, False, timeout=timeout)
    comm.send(data, dst, False, timeout=timeout)


def recv_object_list(
    comm: TorchComm,
    object_list: list[Any],
    src: int,
    timeout: timedelta | None = None,
    weights_only: bool = True,
) -> None:
    """Replaces the entries of `object_list` with what rank `src` sends.

    Raises:
        pickle.UnpicklingError: as in `all_gather_object`.
    """
    _require_list("object_list", object_list)
    sizes = _new_sizes(len(object_list), comm)
    comm.recv(sizes, src, False, timeout=timeout)
    data = _new_bytes(int(sizes.sum()), comm)
    comm.recv(data, src, False, timeout=timeout)
    object_list[:] = _decoded_list(sizes, data, src, weights_only)


def broadcast_object_list(
    comm: TorchComm,
    object_list: list[Any],
    root: int,
    timeout: timedelta | None = None,
    weights_only: bool = True,
) -> None:
    """Replaces the entries of `object_list` with those of rank `root`.

    Args:
        object_list: as long on every rank.

    Raises:
        pickle.UnpicklingError: as in `all_gather_object`.
    """
    is_root = comm.get_rank() == root
    _require_list("object_list", object_list)
    sizes = _new_sizes(len(object_list), comm)
    if is_root:
        sizes, data = _encoded_list(object_list, comm)
    comm.broadcast(sizes, root, False, timeout=timeout)
    if not is_root:
        data = _new_bytes(int(sizes.sum()), comm)
    comm.broadcast(data, root, False, timeout=timeout)
    if not is_root:
        object_list[:] = _decoded_list(sizes, data, root, weights_only)


def scatter_object_list(
    comm: TorchComm,
    root: int,
    scatter_object_output_list: list[Any],
    scatter_object_input_list: Sequence[Any] | None = None,
    timeout: timedelta | None = None,
    weights_only: bool = True,
) -> None:
    """Gives rank r the r-th object of rank `root`.

    Args:
        scatter_object_output_list: its first entry gets the object; not empty.
        scatter_object_input_list: at the root an object per rank; not looked at elsewhere.

    Raises:
        ValueError: a list has the wrong length.
        pickle.UnpicklingError: as in `all_gather_object`.
    """
    _require_list("scatter_object_output_list", scatter_object_output_list)
    if not scatter_object_output_list:
        raise ValueError("scatter_object_output_list must have an entry for the object")
    own = _new_sizes(2, comm)  # bytes of the object, and of the longest
    facts: list[Tensor] = []
    parts: list[Tensor] = []
    if comm.get_rank() == root:
        _require_length("scatter_object_input_list", scatter_object_input_list, comm.get_size())
        encoded = [_encoded(obj, comm) for obj in scatter_object_input_list or ()]
        longest = max(part.numel() for part in encoded)
        facts = [own.new_tensor([part.numel(), longest]) for part in encoded]
        parts = [_padded(part, longest) for part in encoded]
    comm.scatter(own, facts, root, False, timeout=timeout)
    size, longest = own.tolist()
    data = _new_bytes(longest, comm)
    comm.scatter(data, parts, root, False, timeout=timeout)
    scatter_object_output_list[0] = _decoded(data[:size], root, weights_only)


def _require_length(name: str, values: Sequence[Any] | None, length: int) -> None:
    if values is not None:
        _require_sequence(name, values)
    if values is None or len(values) != length:
        given = "None" if values is None else str(len(values))
        raise ValueError(f"{name} must have {length} entries, one per rank; got {given}")


def _require_list(name: str, values: Any) -> None:
    """Where a list gets objects, or its length is told to others."""
    if not isinstance(values, list):
        raise TypeError(f"{name} must be a list, not {type(values).__name__}")


def _require_sequence(name: str, values: Any) -> None:
    if not isinstance(values, Sequence) or isinstance(values, (str, bytes)):
        raise TypeError(f"{name} must be a list, not {type(values).__name__}")


def _uses_pickle() -> bool:
    name = _variables.text("TORCHCOMMS_SERIALIZATION") or "torch.save"
    if name not in ("torch.save", "pickle"):
        raise ValueError(f"TORCHCOMMS_SERIALIZATION must be torch.save or pickle, not {name}")
    return name == "pickle"


def _encoded(obj: Any, comm: TorchComm) -> Tensor:
    """Its bytes, never none of them, on the communicator's device."""
    if _uses_pickle():
        data = pickle.dumps(obj)
    else:
        buffer = io.BytesIO()
        torch.save(obj, buffer)
        data = buffer.getvalue()
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).to(comm.get_device())


def _no_bytes(*given: object) -> bytes:
    """An empty `bytes` is saved as a call of `bytes`, which could ask for any memory."""
    if given:
        raise pickle.UnpicklingError("bytes are made of something")
    return b""


def _allow_no_bytes() -> None:
    """For the process, as torch has one list for all threads: taken back, it would be missing in
    what another thread loads."""
    allowed = (_no_bytes, "builtins.bytes")
    if allowed not in torch.serialization.get_safe_globals():
        torch.serialization.add_safe_globals([allowed])


def _decoded(data: Tensor, rank: int, weights_only: bool) -> Any:
    content = data.cpu().numpy().tobytes()
    if _uses_pickle():
        return pickle.loads(content)
    try:
        _allow_no_bytes()
        return torch.load(io.BytesIO(content), weights_only=weights_only)
    except pickle.UnpicklingError as error:
        raise pickle.UnpicklingError(
            f"What rank {rank} sent is more than tensors and plain values. If you trust it, pass "
            f"weights_only=False to run what it says.\n{error}"
        ) from error


def _encoded_list(objects: Sequence[Any], comm: TorchComm) -> tuple[Tensor, Tensor]:
    """The sizes, and all bytes one after another."""
    encoded = [_encoded(obj, comm) for obj in objects]
    sizes = torch.tensor([part.numel() for part in encoded], dtype=torch.int64)
    data = torch.cat(encoded) if encoded else _new_bytes(0, comm)
    return sizes.to(comm.get_device()), data


def _decoded_list(sizes: Tensor, data: Tensor, rank: int, weights_only: bool) -> list[Any]:
    return [_decoded(part, rank, weights_only) for part in torch.split(data, sizes.tolist())]


def _new_sizes(count: int, comm: TorchComm) -> Tensor:
    return torch.zeros(count, dtype=torch.int64, device=comm.get_device())


def _new_bytes(count: int, comm: TorchComm) -> Tensor:
    return torch.empty(count, dtype=torch.uint8, device=comm.get_device())


def _padded(data: Tensor, size: int) -> Tensor:
    return torch.cat([data, data.new_zeros(size - data.numel())])


def _gathered_sizes(comm: TorchComm, data: Tensor, timeout: timedelta | None) -> list[int]:
    sizes = _new_sizes(comm.get_size(), comm)
    own = sizes.new_tensor([data.numel()])
    comm.all_gather_single(sizes, own, False, timeout=timeout)
    return [int(size) for size in sizes.tolist()]
