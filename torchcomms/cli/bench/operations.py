"""The operations that are timed: their buffers, what they should give, and how much they move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcomms.cli.bench.libraries import Library

REDUCTIONS = ("sum", "max", "min")
_VALUES = 7  # sums of so small numbers are exact, in bfloat16 of up to 36 ranks


@dataclass(frozen=True)
class Place:
    """One rank, and what all agree about."""

    rank: int
    size: int
    root: int
    op: str
    dtype: torch.dtype
    device: torch.device
    is_in_place: bool = False  # of what moves from an input to an output, where that can be

    def counts(self, count: int) -> list[int]:
        """Of the blocks of all ranks where they differ: `count` on average, about."""
        return [max(2 * (rank + 1) * count // (self.size + 1), 1) for rank in range(self.size)]

    def values(self, rank: int, count: int, first: int = 0) -> Tensor:
        """What a rank contributes: by rank and position."""
        index = torch.arange(first, first + count, device=self.device)
        return ((index + 3 * rank) % _VALUES).to(self.dtype)

    def poisoned(self, count: int) -> Tensor:
        return torch.full((count,), 99, dtype=self.dtype, device=self.device)

    def reduced(self, count: int, first: int = 0) -> Tensor:
        parts = torch.stack([self.values(r, count, first) for r in range(self.size)])
        if self.op == "sum":
            return parts.sum(0, dtype=torch.float64).to(self.dtype)
        return parts.amax(0) if self.op == "max" else parts.amin(0)


@dataclass(frozen=True)
class Prepared:
    """One operation of one size."""

    call: Callable[[Library], None]
    # Fills inputs and poisons outputs; None: there is nothing to check.
    fill: Callable[[], None] | None = None
    # What has to be in the outputs then: (found, expected) pairs.
    results: Callable[[], list[tuple[Tensor, Tensor]]] | None = None


@dataclass(frozen=True)
class Operation:
    """`prepare` gets the elements of one block; `blocks` of them are the bytes that are named.

    `bus` is the factor between algbw and busbw, as nccl-tests define it (its doc/PERFORMANCE.md):
    what each link has to carry, whatever the number of ranks.
    """

    name: str
    prepare: Callable[[Place, int], Prepared]
    bus: Callable[[int], float]
    has_blocks: bool = False  # the bytes are those of all ranks' blocks together
    reduces: bool = False
    has_root: bool = False
    is_uneven: bool = False
    can_be_in_place: bool = False
    is_in_place: bool = False  # always


def _all_reduce(place: Place, count: int) -> Prepared:
    data = place.values(place.rank, count)
    return Prepared(
        lambda library: library.all_reduce(data, place.op),
        lambda: _set(data, place.values(place.rank, count)),
        lambda: [(data, place.reduced(count))],
    )


def _reduce(place: Place, count: int) -> Prepared:
    data = place.values(place.rank, count)
    return Prepared(
        lambda library: library.reduce(data, place.root, place.op),
        lambda: _set(data, place.values(place.rank, count)),
        lambda: [(data, place.reduced(count))] if place.rank == place.root else [],
    )


def _broadcast(place: Place, count: int) -> Prepared:
    data = place.values(place.rank, count)
    return Prepared(
        lambda library: library.broadcast(data, place.root),
        lambda: _set(data, place.values(place.rank, count)),
        lambda: [(data, place.values(place.root, count))],
    )


def _all_gather(place: Place, count: int) -> Prepared:
    output, values = place.poisoned(count * place.size), place.values(place.rank, count)
    own = output[count * place.rank : count * (place.rank + 1)]
    given = own if place.is_in_place else values

    def fill() -> None:
        output.copy_(place.poisoned(output.numel()))
        given.copy_(place.values(place.rank, count))

    return Prepared(
        lambda library: library.all_gather(output, given),
        fill,
        lambda: [(output, torch.cat([place.values(r, count) for r in range(place.size)]))],
    )


def _reduce_scatter(place: Place, count: int) -> Prepared:
    given = place.values(place.rank, count * place.size)
    own = given[count * place.rank : count * (place.rank + 1)]
    output = own if place.is_in_place else place.poisoned(count)

    def fill() -> None:
        output.copy_(place.poisoned(count))
        given.copy_(place.values(place.rank, given.numel()))

    return Prepared(
        lambda library: library.reduce_scatter(output, given, place.op),
        fill,
        lambda: [(output, place.reduced(count, count * place.rank))],
    )


def _all_gather_v(place: Place, count: int) -> Prepared:
    counts = place.counts(count)
    given, output = place.values(place.rank, counts[place.rank]), place.poisoned(sum(counts))
    parts = list(torch.split(output, counts))
    return Prepared(
        lambda library: library.all_gather_v(parts, given),
        lambda: _set(output, place.poisoned(output.numel())),
        lambda: [(output, torch.cat([place.values(r, n) for r, n in enumerate(counts)]))],
    )


def _reduce_scatter_v(place: Place, count: int) -> Prepared:
    counts = place.counts(count)
    given, output = place.values(place.rank, sum(counts)), place.poisoned(counts[place.rank])
    parts = list(torch.split(given, counts))
    return Prepared(
        lambda library: library.reduce_scatter_v(output, parts, place.op),
        lambda: _set(output, place.poisoned(output.numel())),
        lambda: [(output, place.reduced(output.numel(), sum(counts[: place.rank])))],
    )


def _all_to_all_v(place: Place, count: int) -> Prepared:
    """Everybody sends most to the last rank."""
    counts = place.counts(count)
    own, first = counts[place.rank], sum(counts[: place.rank])
    given, output = place.values(place.rank, sum(counts)), place.poisoned(own * place.size)
    return Prepared(
        lambda library: library.all_to_all_v(output, given, [own] * place.size, counts),
        lambda: _set(output, place.poisoned(output.numel())),
        lambda: [(output, torch.cat([place.values(r, own, first) for r in range(place.size)]))],
    )


def _all_to_all(place: Place, count: int) -> Prepared:
    given, output = place.values(place.rank, count * place.size), place.poisoned(count * place.size)
    first = count * place.rank
    return Prepared(
        lambda library: library.all_to_all(output, given),
        lambda: _set(output, place.poisoned(output.numel())),
        lambda: [(output, torch.cat([place.values(r, count, first) for r in range(place.size)]))],
    )


def _gather(place: Place, count: int) -> Prepared:
    given = place.values(place.rank, count)
    is_root = place.rank == place.root
    output = place.poisoned(count * place.size if is_root else 0)
    parts = list(output.view(place.size, count).unbind()) if is_root else []
    return Prepared(
        lambda library: library.gather(parts, given, place.root),
        lambda: _set(output, place.poisoned(output.numel())),
        lambda: (
            [(output, torch.cat([place.values(r, count) for r in range(place.size)]))]
            if is_root
            else []
        ),
    )


def _scatter(place: Place, count: int) -> Prepared:
    output = place.poisoned(count)
    is_root = place.rank == place.root
    given = place.values(place.rank, count * place.size).view(place.size, count)
    parts = list(given.unbind()) if is_root else []
    return Prepared(
        lambda library: library.scatter(output, parts, place.root),
        lambda: _set(output, place.poisoned(count)),
        lambda: [(output, place.values(place.root, count, count * place.rank))],
    )


def _send_recv(place: Place, count: int) -> Prepared:
    given, output = place.values(place.rank, count), place.poisoned(count)
    to, source = (place.rank + 1) % place.size, (place.rank - 1) % place.size
    return Prepared(
        lambda library: library.exchange(output, given, to, source),
        lambda: _set(output, place.poisoned(count)),
        lambda: [(output, place.values(source, count))],
    )


def _barrier(_place: Place, _count: int) -> Prepared:
    return Prepared(lambda library: library.barrier())


def _set(to: Tensor, values: Tensor) -> None:
    to.copy_(values)


def _all_others(size: int) -> float:
    return (size - 1) / size


def _once(_size: int) -> float:
    return 1.0


OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation(
            "all_reduce", _all_reduce, lambda n: 2 * (n - 1) / n, reduces=True, is_in_place=True
        ),
        Operation("all_gather", _all_gather, _all_others, has_blocks=True, can_be_in_place=True),
        Operation(
            "reduce_scatter",
            _reduce_scatter,
            _all_others,
            has_blocks=True,
            reduces=True,
            can_be_in_place=True,
        ),
        Operation("all_to_all", _all_to_all, _all_others, has_blocks=True),
        Operation("broadcast", _broadcast, _once, has_root=True, is_in_place=True),
        Operation("reduce", _reduce, _once, reduces=True, has_root=True, is_in_place=True),
        Operation("gather", _gather, _all_others, has_blocks=True, has_root=True),
        Operation("scatter", _scatter, _all_others, has_blocks=True, has_root=True),
        Operation("send_recv", _send_recv, _once),
        Operation("all_gather_v", _all_gather_v, _all_others, has_blocks=True, is_uneven=True),
        Operation(
            "reduce_scatter_v",
            _reduce_scatter_v,
            _all_others,
            has_blocks=True,
            reduces=True,
            is_uneven=True,
        ),
        Operation("all_to_all_v", _all_to_all_v, _all_others, has_blocks=True, is_uneven=True),
        Operation("barrier", _barrier, lambda _n: 0.0),
    )
}
