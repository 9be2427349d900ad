"""Data that depends on rank and position, and tensors whose surroundings are watched."""

from __future__ import annotations

from collections.abc import Sequence

import torch

# What a type is moved and compared as, bit by bit.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

INTEGERS = (
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
)
FLOATS = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
)
COMPLEX = (torch.complex64, torch.complex128)
REDUCIBLE = (torch.bool, *INTEGERS, *FLOATS, *COMPLEX)
# Moved without knowing what they mean.
OPAQUE = (torch.float8_e4m3fnuz, torch.complex32)

POISON = 0xA5
GUARD = 7  # elements on either side; odd, so that tensors start at odd addresses


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as integers, of half the width for 16-byte types."""
    if tensor.element_size() == 16:
        return torch.view_as_real(tensor).view(torch.int64)
    return tensor.view(_BITS[tensor.element_size()])


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold the same bits; NaN is equal to any NaN of that type."""
    if torch.equal(bits(a), bits(b)):
        return True
    if not (a.is_floating_point() or a.is_complex()):
        return False
    a, b = (torch.view_as_real(t) if t.is_complex() else t for t in (a, b))
    wide = torch.float64 if a.dtype == torch.float64 else torch.float32
    nan = a.to(wide).isnan() & b.to(wide).isnan()
    return bool(((bits(a) == bits(b)) | nan).all())


def poison(tensor: torch.Tensor) -> None:
    """Fills with a pattern that no test expects."""
    if tensor.numel():
        tensor.view(-1).view(torch.uint8).fill_(POISON)


class Guarded:
    """A tensor between two strips of poison, at an address with the least possible alignment."""

    def __init__(self, count: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> None:
        self._whole = torch.empty(count + 2 * GUARD, dtype=dtype, device=device)
        poison(self._whole)
        self.tensor = self._whole[GUARD : GUARD + count]

    def is_intact(self) -> bool:
        """Whether nobody has written beside the tensor."""
        raw = self._whole.view(torch.uint8)
        strip = GUARD * self._whole.element_size()
        return bool((raw[:strip] == POISON).all() and (raw[-strip:] == POISON).all())


def concat(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """torch.cat, for every type."""
    return torch.cat([part.contiguous().view(torch.uint8) for part in parts]).view(parts[0].dtype)


def _noise(rank: int, count: int, salt: int) -> torch.Tensor:
    """63 random-looking bits per position, of rank, position and salt alone."""
    start = ((rank + 1) * 0x632BE59BD9B4E019 + salt * 0x1D8E4E27C47D124F) % 2**63
    x = torch.arange(count, dtype=torch.int64) * 0x2545F4914F6CDD1D + start
    x = (x ^ (x >> 29)) * 0x3F58476D1CE4E5B9
    return (x ^ (x >> 32)) & 0x7FFFFFFFFFFFFFFF


def _words(rank: int, count: int, size: int, salt: int) -> torch.Tensor:
    """As many random-looking integers of so many bytes."""
    noise = _noise(rank, (count * size + 7) // 8, salt)
    noise ^= noise << 1  # sign bits too
    return noise.view(torch.uint8)[: count * size]


def _reals(rank: int, count: int, dtype: torch.dtype, salt: int) -> torch.Tensor:
    """In [-2, 2), with all bits of the mantissa in use, so that every rounding shows."""
    if dtype.itemsize <= 2:
        return (_words(rank, count, 2, salt).view(torch.int16).float() * 2.0**-14).to(dtype)
    return (_words(rank, count, 8, salt).view(torch.int64).double() * 2.0**-62).to(dtype)


def values(rank: int, count: int, dtype: torch.dtype, salt: int = 0) -> torch.Tensor:
    """What rank `rank` contributes: integers of all sizes, reals in [-2, 2), mixed truths."""
    if dtype == torch.bool:
        # Mostly true in one half of the positions and mostly false in the other.
        noise = _words(rank, count, 1, salt)
        return torch.where(torch.arange(count) % 2 == 0, noise % 8 != 0, noise % 8 == 0)
    if dtype in COMPLEX:
        part = torch.float32 if dtype == torch.complex64 else torch.float64
        return _reals(rank, 2 * count, part, salt).view(dtype)
    if dtype in FLOATS:
        return _reals(rank, count, dtype, salt)
    return _words(rank, count, dtype.itemsize, salt).view(dtype)
