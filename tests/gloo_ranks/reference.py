"""What reductions give, computed with Python's own numbers; data that shows where it is from."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import torch

INTEGERS = (
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.uint16,
    torch.int32,
    torch.uint32,
    torch.int64,
    torch.uint64,
)
FLOATS = (
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)
COMPLEX = (torch.complex64, torch.complex128)
DTYPES = (torch.bool, *INTEGERS, *FLOATS, *COMPLEX)
OPS = ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG", "PREMUL_SUM")

Number = bool | int | float | complex


def is_defined(op: str, dtype: torch.dtype) -> bool:
    """Whether the reduction means something, by what the documentation says."""
    if op in ("SUM", "PRODUCT"):
        return True
    if op in ("MIN", "MAX"):
        return dtype not in COMPLEX
    if op in ("BAND", "BOR", "BXOR"):
        return dtype is torch.bool or dtype in INTEGERS
    if op == "AVG" and dtype in INTEGERS:
        return True
    return dtype in FLOATS or dtype in COMPLEX


@functools.lru_cache(maxsize=64)
def numbers(rank: int, count: int, dtype: torch.dtype, salt: int = 0) -> Sequence[Number]:
    """Depend on rank and position. Small, but for integers that also have their extremes."""
    made: list[Number] = []
    for i in range(count):
        small = (i * 7 + rank * 5 + salt * 3) % 4 + 1
        if dtype is torch.bool:
            made.append((i + rank + salt) % 3 != 0)
        elif dtype in INTEGERS:
            info = torch.iinfo(dtype)
            choice = (i + rank) % 5
            off = i % 7
            made.append((small, small, small, info.max - off, info.min + off)[choice])
        elif dtype in FLOATS:
            made.append(float(-small if i % 5 == 2 else small))
        else:
            made.append(complex(small, (i + rank) % 3 - 1))
    return made


def tensor(values: Sequence[Number], dtype: torch.dtype) -> torch.Tensor:
    """Integers wrap around."""
    if dtype not in INTEGERS:
        return torch.tensor(
            values, dtype=torch.complex128 if dtype in COMPLEX else torch.float64
        ).to(dtype)
    wrapped = [(int(v.real) + (1 << 63)) % (1 << 64) - (1 << 63) for v in values]
    return torch.tensor(wrapped, dtype=torch.int64).to(dtype)


def poison(count: int, dtype: torch.dtype) -> torch.Tensor:
    size = torch.empty(0, dtype=dtype).element_size()
    return torch.full((count * size,), 1 if dtype is torch.bool else 0x5B, dtype=torch.uint8).view(
        dtype
    )


def factor(rank: int) -> float:
    """Of PREMUL_SUM; exact in every floating type."""
    return (0.5, 2.0, -1.0, 4.0)[rank % 4]


def reduced(op: str, contributions: Sequence[Sequence[Number]], dtype: torch.dtype) -> torch.Tensor:
    """Of one sequence of numbers per rank."""
    return tensor(
        [_reduce(op, column, dtype) for column in zip(*contributions, strict=True)], dtype
    )


def _reduce(op: str, column: tuple[Number, ...], dtype: torch.dtype) -> Number:
    if op == "PREMUL_SUM":
        return sum(factor(rank) * value for rank, value in enumerate(column))
    if op == "AVG" and dtype in INTEGERS:
        total = int(tensor([sum(column)], dtype).item())  # wrapped around
        return abs(total) // len(column) * (1 if total >= 0 else -1)
    if op == "AVG":
        return sum(column) / len(column)
    if dtype is torch.bool and op in ("SUM", "PRODUCT"):
        return any(column) if op == "SUM" else all(column)
    if op in ("MIN", "MAX"):
        return min(column) if op == "MIN" else max(column)  # type: ignore[type-var]
    combine = {
        "SUM": operator.add,
        "PRODUCT": operator.mul,
        "BAND": operator.and_,
        "BOR": operator.or_,
        "BXOR": operator.xor,
    }[op]
    return functools.reduce(combine, column)


def assert_same(got: torch.Tensor, want: torch.Tensor, what: str) -> None:
    """Of flat tensors: every bit, but for the sign of zero."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape), what
    if got.dtype in FLOATS or got.dtype in COMPLEX:
        wide = torch.complex128 if got.dtype in COMPLEX else torch.float64
        got, want = got.to(wide), want.to(wide)
    pairs = enumerate(zip(got.tolist(), want.tolist(), strict=True))
    wrong = [(i, one, other) for i, (one, other) in pairs if one != other]
    assert not wrong, f"{what}: {len(wrong)} wrong, first (index, got, want): {wrong[:5]}"
