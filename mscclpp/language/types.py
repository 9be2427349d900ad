"""The words that programs and plans share: buffers, channels, syncs, reductions, chunks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class BufferType(Enum):
    """Which buffer of a rank; the value is its letter in JSON."""

    input = "i"
    output = "o"
    scratch = "s"


class ChannelType(Enum):
    """How a channel reaches the other rank."""

    memory = "memory"  # the threads of the block load and store the other rank's memory
    port = "port"  # the block asks a host thread, which copies
    switch = "switch"  # several ranks at once


class SyncType(Enum):
    """Where the threads of a block meet around an operation."""

    none = "none"
    before = "before"
    after = "after"
    both = "both"

    @property
    def meets_before(self) -> bool:
        return self in (SyncType.before, SyncType.both)

    @property
    def meets_after(self) -> bool:
        return self in (SyncType.after, SyncType.both)


class ReduceOperationType(Enum):
    """How elements are reduced."""

    sum = "sum"
    min = "min"
    max = "max"


@dataclass(frozen=True)
class Chunk:
    """`size` chunks of a buffer of a rank, from chunk `index` on."""

    rank: int
    buffer: BufferType
    index: int
    size: int

    def __str__(self) -> str:
        return f"{self.buffer.name}[{self.index}:{self.index + self.size}] of rank {self.rank}"


@dataclass(frozen=True)
class SwitchChunk:
    """The same chunks of a buffer of every rank of a switch channel."""

    channel: int  # the number of the switch channel, per rank, in the order of their creation
    index: int
    size: int
