"""Where kernels and memory are: on a GPU, or on the host."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

from mscclpp import _runtime

__all__ = ["extent", "gpu_named", "has_gpu"]


def has_gpu() -> bool:
    """Whether there is a GPU: kernels run on it then, unless a program says otherwise."""
    return _runtime.gpu_count() > 0


def _current() -> int:
    return _runtime.current_gpu() or 0  # none is: the first one, as CUDA has it


def gpu_named(device: str | int | None) -> int:
    """The number of a GPU; -1 for the host.

    Args:
        device: "cuda", for the one that is current; "cuda:1", or 1; "cpu"; None: "cuda" where there
            is a GPU, else "cpu".

    Raises:
        ValueError: there is none of that name.
    """
    if device is None:
        return _current() if has_gpu() else -1
    kind, _, number = str(device).partition(":")
    if isinstance(device, int):
        kind, number = "cuda", str(device)
    if kind == "cpu":
        return -1
    if kind != "cuda" or (number and not number.isdecimal()):
        raise ValueError(f"{device!r} is neither 'cpu' nor 'cuda', with a number or without")
    there = _runtime.gpu_count()
    if int(number or 0) >= there:
        raise ValueError(f"there is no {device!r}: this process sees {there} GPUs")
    return int(number) if number else _current()


def extent(tensor: Any) -> tuple[int, int]:
    """Where the memory of a tensor or an array is, and how many bytes it has.

    Raises:
        TypeError: it is none.
        ValueError: it is not contiguous.
    """
    if hasattr(tensor, "data_ptr"):  # torch's
        is_contiguous = getattr(tensor, "is_contiguous", None)
        if is_contiguous is not None and not is_contiguous():
            raise ValueError("the tensor has to be contiguous")
        return int(tensor.data_ptr()), int(tensor.nbytes)
    for name in ("__cuda_array_interface__", "__array_interface__"):  # cupy's, numpy's
        described = getattr(tensor, name, None)
        if described is None:
            continue
        if described.get("strides") is not None:
            raise ValueError("the array has to be contiguous")
        item = int(described["typestr"][2:])
        return int(described["data"][0]), prod(described["shape"]) * item
    if callable(getattr(tensor, "data", None)) and callable(getattr(tensor, "bytes", None)):
        return int(tensor.data()), int(tensor.bytes())  # a RawGpuBuffer
    if isinstance(tensor, ctypes.Array):
        return ctypes.addressof(tensor), ctypes.sizeof(tensor)
    raise TypeError(f"{type(tensor).__name__} is no tensor or array with memory of its own")
