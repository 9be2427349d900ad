"""What is timed, how much of it, and what it costs at least."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Operation:
    """An operation as all libraries run it: float32, sum, root 0.

    Sizes are the full, world-sized buffer in bytes: the one that each rank holds of all_reduce,
    broadcast, reduce and send_recv; all that is gathered, scattered or exchanged by the others,
    whose blocks are a world-th of it, at least one element.
    """

    name: str
    input_per_rank: bool = False
    """The input is one block per rank, else one block."""
    output_per_rank: bool = False
    """The output, likewise."""

    def block_elements(self, nbytes: int, ranks: int) -> int:
        """Elements of one block."""
        blocks = ranks if self.input_per_rank or self.output_per_rank else 1
        return max(1, nbytes // 4 // blocks)

    def bus_factor(self, ranks: int) -> float:
        """Bytes that must cross between ranks, per rank and per byte of the full buffer."""
        if self.name == "all_reduce":
            return 2 * (ranks - 1) / ranks
        if self.input_per_rank or self.output_per_rank:
            return (ranks - 1) / ranks
        return 1.0

    def roofline_copies(self, ranks: int) -> float:
        """The busiest rank's reads and writes of a perfect algorithm, in copies of the buffer.

        A copy of S bytes reads S and writes S. A perfect all_reduce reads a world-th of every
        rank's input and writes one output, which is as much; a perfect reduce_scatter reads as
        much but writes a world-th.
        """
        if self.name == "barrier":
            return 0.0
        if self.name == "reduce_scatter":
            return (1 + 1 / ranks) / 2
        return 1.0


OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation("all_reduce"),
        Operation("all_gather", output_per_rank=True),
        Operation("reduce_scatter", input_per_rank=True),
        Operation("broadcast"),
        Operation("all_to_all", input_per_rank=True, output_per_rank=True),
        Operation("barrier"),
        Operation("reduce"),
        Operation("gather", output_per_rank=True),
        Operation("scatter", input_per_rank=True),
        Operation("send_recv"),
    )
}

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str) -> int:
    """Bytes of "8", "4K", "16M"."""
    number = text.rstrip("KMGkmg")
    return int(number) * _UNITS[text[len(number) :].upper()]


def format_size(nbytes: int) -> str:
    """The inverse of parse_size."""
    for unit in ("G", "M", "K"):
        if nbytes >= _UNITS[unit] and nbytes % _UNITS[unit] == 0:
            return f"{nbytes // _UNITS[unit]}{unit}"
    return str(nbytes)
