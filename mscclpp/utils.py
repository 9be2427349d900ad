"""Small things that programs need."""

from __future__ import annotations

from typing import Any

from mscclpp.kernels import Kernel as Kernel
from mscclpp.kernels import KernelBuilder as KernelBuilder
from mscclpp.kernels import pack as pack
from mscclpp.types import DataType

__all__ = ["Kernel", "KernelBuilder", "pack", "torch_dtype_to_mscclpp_dtype"]

_NAMES = {
    "float8_e4m3fn": DataType.float8_e4m3,
    **{kind.name: kind for kind in DataType if kind is not DataType.float8_e4m3},
}
_known: dict[Any, DataType] = {}


def torch_dtype_to_mscclpp_dtype(dtype: Any) -> DataType:
    """The DataType of a torch.dtype. Raises ValueError where there is none."""
    known = _known.get(dtype)
    if known is None:
        known = _NAMES.get(str(dtype).removeprefix("torch."))
        if known is None:
            raise ValueError(f"there is no DataType for {dtype}; there are {', '.join(_NAMES)}")
        _known[dtype] = known
    return known
