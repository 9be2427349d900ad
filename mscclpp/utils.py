"""Small things that programs need."""

from __future__ import annotations

from typing import Any

from mscclpp.kernels import Kernel as Kernel
from mscclpp.kernels import KernelBuilder as KernelBuilder
from mscclpp.kernels import pack as pack
from mscclpp.native import gpu_arch
from mscclpp.types import DataType

__all__ = ["Kernel", "KernelBuilder", "get_device_arch", "pack", "torch_dtype_to_mscclpp_dtype"]

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
            raise ValueError(
                f"there is no DataType for {dtype}; there are {', '.join(_NAMES)}; what is not "
                f"reduced can be viewed as uint8"
            )
        _known[dtype] = known
    return known


def get_device_arch() -> str:
    """For which GPU code is compiled here: "sm_90" of an H100. Raises RuntimeError without a
    GPU."""
    arch = gpu_arch()
    if arch is None:
        raise RuntimeError("there is no GPU here, so there is no architecture of one")
    return f"sm_{arch.rstrip('a')}"
