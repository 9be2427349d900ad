"""Types of arguments of commands: what is wrong is said in words."""

from __future__ import annotations

import argparse
from collections.abc import Callable

_MOST_SECONDS = 1e9  # about 32 years: what is longer overflows clocks and timeouts
_MOST_BYTES = (1 << 63) - 1
_MOST_COUNT = (1 << 31) - 1


def size(least: int = 0) -> Callable[[str], int]:
    """Bytes: 4096, 64K, 32M or 1G, at least so many."""

    def parse(text: str) -> int:
        scale = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper())
        try:
            value = int(text[:-1]) << scale if scale else int(text)
        except ValueError:
            value = -1
        if not least <= value <= _MOST_BYTES:
            raise argparse.ArgumentTypeError(
                f"'{_short(text)}' is not a size, such as 8, 64K, 32M or 1G"
            )
        return value

    return parse


def count(least: int = 1) -> Callable[[str], int]:
    """A number, at least so many."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= _MOST_COUNT:
            more = "or more" if value < least else f"to {_MOST_COUNT}"
            raise argparse.ArgumentTypeError(f"'{_short(text)}' is not a number, {least} {more}")
        return value

    return parse


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."


def seconds(text: str) -> float:
    """Some time: 10, 10s, 500ms or 2min; not without end."""
    number, factor = text, 1.0
    for unit, scale in (("ms", 1e-3), ("s", 1.0), ("min", 60.0)):
        if text.endswith(unit):
            number, factor = text.removesuffix(unit), scale
            break
    try:
        value = float(number) * factor
    except ValueError:
        value = 0.0
    if not 0 < value <= _MOST_SECONDS:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a number of seconds, more than 0 and at most 1e9; nor a time, "
            "such as 500ms or 2min"
        )
    return value
