"""What reductions have to give: plain torch, contribution after contribution in rank order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce as fold

import torch

from harness.data import COMPLEX, FLOATS, INTEGERS

_SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

# The names of torchcomms.RedOpType; PREMUL_SUM twice, as its factor may be a number or a tensor.
OPS = ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG", "PREMUL", "PREMUL_TENSOR")


def is_defined(op: str, dtype: torch.dtype) -> bool:
    """Whether a reduction has a meaning for a type."""
    if op in ("SUM", "PRODUCT"):
        return True
    if op in ("MIN", "MAX"):
        return dtype not in COMPLEX
    if op in ("BAND", "BOR", "BXOR"):
        return dtype in INTEGERS or dtype == torch.bool
    if op == "AVG" and dtype in INTEGERS:
        return True
    return dtype in FLOATS or dtype in COMPLEX


def factor(rank: int) -> float:
    """The PREMUL_SUM factor of a rank: not a binary fraction, so that it has to be rounded."""
    return 0.3 + 0.7 * rank


def _complex_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    # In single steps, each rounded: torch's own may be fused.
    real = a.real * b.real - a.imag * b.imag
    return torch.complex(real, a.real * b.imag + a.imag * b.real)


def _minimum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """With -0.0 below 0.0: torch's own gives one or the other, by where its vectors end."""
    least = torch.minimum(a, b)
    negative = (least == 0) & (a.signbit() | b.signbit())
    return torch.where(negative, -least.abs(), least)


def _maximum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return -_minimum(-a, -b)


_ON_REALS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "SUM": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}
_ON_FLOATS = {**_ON_REALS, "MIN": _minimum, "MAX": _maximum}
_ON_BOOLS = {
    "SUM": torch.logical_or,
    "PRODUCT": torch.logical_and,
    "MIN": torch.logical_and,
    "MAX": torch.logical_or,
    "BAND": torch.logical_and,
    "BOR": torch.logical_or,
    "BXOR": torch.logical_xor,
}


def _integers(parts: Sequence[torch.Tensor], op: str) -> torch.Tensor:
    """Signed types of the same width do the same, but for order: there the top bit is turned."""
    dtype = parts[0].dtype
    signed = _SIGNED[dtype.itemsize]
    turn = op in ("MIN", "MAX") and not dtype.is_signed
    top = torch.iinfo(signed).min
    views = [p.view(signed) ^ top if turn else p.view(signed) for p in parts]
    if op == "AVG":
        total = fold(torch.add, views)
        if dtype.is_signed:
            return torch.div(total, len(parts), rounding_mode="trunc")
        numbers = total.view(dtype).numpy()
        return torch.from_numpy(numbers // numbers.dtype.type(len(parts)))
    result = fold(_ON_REALS[op], views)
    return (result ^ top if turn else result).view(dtype)


def _complex(parts: Sequence[torch.Tensor], op: str) -> torch.Tensor:
    if op == "PRODUCT":
        return fold(_complex_product, parts)
    total = fold(torch.add, parts)
    if op == "AVG":
        total = torch.view_as_complex(torch.view_as_real(total) / len(parts))
    return total


def _floats(parts: Sequence[torch.Tensor], op: str) -> torch.Tensor:
    """16- and 8-bit types accumulate in fp32 and are rounded once."""
    dtype = parts[0].dtype
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    total = fold(_ON_FLOATS["SUM" if op == "AVG" else op], [p.to(wide) for p in parts])
    return (total / len(parts) if op == "AVG" else total).to(dtype)


def _scaled(part: torch.Tensor, by: float) -> torch.Tensor:
    """Times a factor, in fp32 or wider."""
    if part.is_complex():
        return torch.view_as_complex(_scaled(torch.view_as_real(part), by))
    wide = torch.float64 if part.dtype == torch.float64 else torch.float32
    return part.to(wide) * torch.tensor(by, dtype=wide)


def reduce(parts: Sequence[torch.Tensor], op: str) -> torch.Tensor:
    """The reduction of what ranks 0, 1, ... contribute; the products of PREMUL_SUM are rounded."""
    dtype = parts[0].dtype
    if op.startswith("PREMUL"):
        scaled = [_scaled(part, factor(r)).to(dtype) for r, part in enumerate(parts)]
        return reduce(scaled, "SUM")
    if len(parts) == 1:
        return parts[0].clone()
    if dtype == torch.bool:
        return fold(_ON_BOOLS[op], parts)
    if dtype in INTEGERS:
        return _integers(parts, op)
    if dtype in COMPLEX:
        return _complex(parts, op)
    return _floats(parts, op)
