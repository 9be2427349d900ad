"""Sizes at which the engine changes its way, taken from its sources."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_SLOT_HEADER = 16  # of Arena::Slot: sequence and signature
_ANNOUNCEMENT = 8 + 64 * 8  # of all_to_all_v, in the ring before its data
_CHANNEL_HEADER = 64  # of a message


@cache
def _constant(file: str, name: str) -> int:
    """An integer constant of a C++ source, written as a product of numbers."""
    source = (_ROOT / file).read_text()
    found = re.search(rf"\b{name} = ([0-9* ]+);", source)
    if found is None:
        raise AssertionError(f"{file} has no constant {name}; the sizes of the matrix follow it")
    product = 1
    for number in found.group(1).split("*"):
        product *= int(number)
    return product


def _slot() -> int:
    return _constant("ctran/transport/shm/arena.h", "kSlotBytes") - _SLOT_HEADER


def _round() -> int:
    return _constant("ctran/transport/shm/arena.h", "kRoundBytes")


def _step() -> int:
    return _constant("ctran/transport/shm/arena.h", "kStepBytes")


_READ_BY_ALL = 64 * 1024  # what all ranks together may read in one step
_CHANNEL = 1024 * 1024  # of a pair of ranks, up to 8 ranks

# Name -> (bytes, of the blocks of all ranks together?). `name` is the most that fits, `name+1` an
# element more.
_BYTES = {
    "slot": (_slot, False),
    "slot of all": (_slot, True),
    "step": (_step, False),
    "step of all": (_step, True),
    "step with counts": (lambda: _step() - _ANNOUNCEMENT, True),
    "steps read": (lambda: _READ_BY_ALL, True),
    "quarter channel": (lambda: _CHANNEL // 4 - _CHANNEL_HEADER, False),
    "round": (_round, False),
    "round of all": (_round, True),
    "eight rounds": (lambda: 8 * _round(), True),
    "large": (lambda: 1_500_000, False),
}
_ABOVE = (0, 1)
_FIXED = {"0": 0, "1": 1, "3": 3, "17": 17, "1009": 1009}

NAMES = (*_FIXED, *(f"{name}{'+1' if more else ''}" for name in _BYTES for more in _ABOVE))


def elements(name: str, itemsize: int, world: int) -> int:
    """How many elements a block has at that size: the last count below a threshold, the next."""
    if name in _FIXED:
        return _FIXED[name]
    more = 1 if name.endswith("+1") else 0
    size, of_all = _BYTES[name.removesuffix("+1")]
    return size() // (world if of_all else 1) // itemsize + more
