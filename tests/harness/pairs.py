"""Covering arrays: few combinations of the values of some axes, in which every pair occurs.

Libraries (allpairspy) miss pairs where not all combinations make sense, as here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

Axes = Mapping[str, Sequence[Any]]
Combination = dict[str, Any]


class _Missing:
    """The pairs that no combination has had yet; `uses` counts what combinations have had."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        items = [(name, value) for name, values in axes.items() for value in values]
        self._numbers = {item: number for number, item in enumerate(items)}
        self.uses = [0] * len(items)
        # Pairs of numbers, smaller first, in a fixed order.
        self._pairs: dict[tuple[int, int], Combination] = {}
        for (a, of_a), (b, of_b) in combinations(axes.items(), 2):
            for x in of_a:
                for y in of_b:
                    key = self._numbers[a, x], self._numbers[b, y]
                    self._pairs[key] = {a: x, b: y}

    def take(self) -> Combination | None:
        """Any pair; it counts as had."""
        return self._pairs.pop(next(iter(self._pairs))) if self._pairs else None

    def number(self, name: str, value: Any) -> int:
        return self._numbers[name, value]

    def brought(self, numbers: Sequence[int], new: int) -> int:
        """How many missing pairs `new` makes with the others."""
        return sum(((n, new) if n < new else (new, n)) in self._pairs for n in numbers)

    def remove(self, made: Combination) -> None:
        numbers = [self._numbers[name, made[name]] for name in self._axes]
        for number in numbers:
            self.uses[number] += 1
        for pair in combinations(numbers, 2):
            self._pairs.pop(pair, None)


def covering(axes: Axes, allowed: Callable[[Combination], bool]) -> list[Combination]:
    """Combinations that are `allowed` and have every pair that any such combination has.

    `allowed` is also asked about parts of a combination: whether it can be completed. Where it says
    yes too easily, an earlier axis has to leave later ones a value that fits, or the pair is left
    out. Greedy: starts with a pair that is missing and completes it axis by axis, each time with
    the value that brings the most missing pairs (the least used one if there are several).
    """
    missing = _Missing(axes)
    result = []
    while (start := missing.take()) is not None:
        made = _complete(start, axes, allowed, missing)
        if made is not None:
            missing.remove(made)
            result.append(made)
    return result


def _complete(
    start: Combination,
    axes: Axes,
    allowed: Callable[[Combination], bool],
    missing: _Missing,
) -> Combination | None:
    made = dict(start)
    if not allowed(made):
        return None
    for name, values in axes.items():
        if name in made:
            continue
        numbers = [missing.number(*item) for item in made.items()]

        def worth(value: Any, name: str = name, numbers: list[int] = numbers) -> tuple[int, int]:
            number = missing.number(name, value)
            return missing.brought(numbers, number), -missing.uses[number]

        fitting = [value for value in values if allowed({**made, name: value})]
        if not fitting:
            return None
        made[name] = max(fitting, key=worth)
    return {name: made[name] for name in axes}
