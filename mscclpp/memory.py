"""Memory for tensors that other ranks reach without copies."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index
from typing import Any

from mscclpp import _runtime
from mscclpp.devices import gpu_named

__all__ = ["GpuBuffer", "RawGpuBuffer"]

# DLPack's code and bits of each type.
_SIGNED, _UNSIGNED, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
_E4M3FN, _E4M3FNUZ, _E5M2, _E5M2FNUZ = 10, 11, 12, 13
_TYPES = {
    "bool": (_BOOL, 8),
    "int8": (_SIGNED, 8),
    "int16": (_SIGNED, 16),
    "int32": (_SIGNED, 32),
    "int64": (_SIGNED, 64),
    "uint8": (_UNSIGNED, 8),
    "uint16": (_UNSIGNED, 16),
    "uint32": (_UNSIGNED, 32),
    "uint64": (_UNSIGNED, 64),
    "float16": (_FLOAT, 16),
    "float32": (_FLOAT, 32),
    "float64": (_FLOAT, 64),
    "bfloat16": (_BFLOAT, 16),
    "complex64": (_COMPLEX, 64),
    "complex128": (_COMPLEX, 128),
    "float8_e4m3fn": (_E4M3FN, 8),
    "float8_e4m3fnuz": (_E4M3FNUZ, 8),
    "float8_e5m2": (_E5M2, 8),
    "float8_e5m2fnuz": (_E5M2FNUZ, 8),
    "fp8_e4m3b15": (_UNSIGNED, 8),  # DLPack has no such type: bytes
}
# numpy's kinds, for __array_interface__.
_KINDS = {_SIGNED: "i", _UNSIGNED: "u", _FLOAT: "f", _COMPLEX: "c", _BOOL: "b"}
_CPU, _CUDA = 1, 2


def _integers(name: str, given: Sequence[int]) -> list[int]:
    """Raises TypeError if it is something else."""
    try:
        return [index(number) for number in given]
    except TypeError:
        raise TypeError(f"{name} must be ints, not {given!r}") from None


class RawGpuBuffer:
    """Bytes that the ranks of a host can map from each other; zeros at first. They live as long as
    this, or a tensor that was made of it.

    Args:
        nelems: how many.
        granularity: the memory is rounded up to a multiple of so many bytes.
        device: "cuda", for the GPU that is current, "cuda:1", or "cpu"; default: a GPU where there
            is one.
    """

    def __init__(
        self, nelems: int, granularity: int = 1, *, device: str | int | None = None
    ) -> None:
        for name, number in (("the size of a buffer", nelems), ("granularity", granularity)):
            if not hasattr(number, "__index__"):
                raise TypeError(f"{name} must be an int, not {type(number).__name__}")
        if granularity < 1:
            raise ValueError(f"granularity is {granularity}, but must be at least 1")
        self._nelems = nelems
        rounded = -(-nelems // granularity) * granularity
        self._memory = _runtime.allocate(rounded, gpu_named(device))

    def nelems(self) -> int:
        """How many bytes were asked for."""
        return self._nelems

    def bytes(self) -> int:
        """How many there are: so many, rounded up to the granularity."""
        return self._memory.bytes

    def data(self) -> int:
        """The address of the first one."""
        return self._memory.address

    def device_id(self) -> int:
        """The number of the GPU; -1: the CPU."""
        return self._memory.gpu

    def to_dlpack(
        self,
        data_type: str = "torch.float32",
        shape: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> object:
        """A capsule for `torch.utils.dlpack.from_dlpack`.

        Args:
            data_type: as `str(torch.float16)` writes it.
            shape: default: one dimension, with all that fits.
            strides: in elements; default: contiguous.

        Raises:
            ValueError: there is no such type, or the tensor does not fit.
        """
        kind = _TYPES.get(str(data_type).removeprefix("torch."))
        if kind is None:
            raise ValueError(f"{data_type!r} is none of {', '.join(_TYPES)}")
        code, bits = kind
        there = self._memory.bytes * 8 // bits
        shape = [there] if shape is None else _integers("shape", shape)
        if strides is None:
            strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
        strides = _integers("strides", strides)
        if len(strides) != len(shape) or min((*shape, *strides), default=0) < 0:
            raise ValueError(f"a tensor has no shape {shape} with strides {strides}")
        needed = 0
        if 0 not in shape:
            needed = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        if needed > there:
            raise ValueError(
                f"a tensor of {needed} elements does not fit: there is memory for {there}"
            )
        return self._memory.to_dlpack(code, bits, shape, strides)

    def __dlpack__(self, **_: Any) -> object:
        return self.to_dlpack("uint8")

    def __dlpack_device__(self) -> tuple[int, int]:
        gpu = self._memory.gpu
        return (_CUDA, gpu) if gpu >= 0 else (_CPU, 0)


class GpuBuffer(RawGpuBuffer):
    """The same with a shape and a type: torch, cupy (on a GPU) and numpy (on the host) take it as
    an array, without a copy.

    Args:
        shape: how many elements, or a sequence of lengths.
        dtype: a type of torch or numpy, or its name.
        device: as of RawGpuBuffer.
    """

    def __init__(
        self,
        shape: int | Sequence[int],
        dtype: Any = "float32",
        *,
        device: str | int | None = None,
    ) -> None:
        self.shape = tuple(_integers("shape", (shape,) if isinstance(shape, int) else shape))
        name = getattr(dtype, "__name__", None) or str(dtype)
        self.dtype = name.removeprefix("torch.")
        if self.dtype not in _TYPES:
            raise ValueError(f"{dtype!r} is none of {', '.join(_TYPES)}")
        if min(self.shape, default=0) < 0:
            raise ValueError(f"a buffer has no shape {self.shape}")
        self._code, self._bits = _TYPES[self.dtype]
        self.size = prod(self.shape)
        self.nbytes = self.size * self._bits // 8
        super().__init__(self.nbytes, device=device)

    def nelems(self) -> int:
        """How many elements there are."""
        return self.size

    def __dlpack__(self, **_: Any) -> object:
        return self.to_dlpack(self.dtype, self.shape)

    def _described(self) -> dict[str, Any]:
        if self._code not in _KINDS:
            raise AttributeError(f"numpy has no {self.dtype}")
        kind = f"{'|' if self._bits == 8 else '<'}{_KINDS[self._code]}{self._bits // 8}"
        return {
            "shape": self.shape,
            "typestr": kind,
            "data": (self.data(), False),
            "strides": None,
            "version": 3,
        }

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self.device_id() >= 0:
            raise AttributeError("the memory is on a GPU")
        return self._described()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.device_id() < 0:
            raise AttributeError("the memory is on the host")
        return self._described()
