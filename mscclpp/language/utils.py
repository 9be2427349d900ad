"""The specification of an algorithm, and how a program is replicated."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from mscclpp.language.collectives import Collective

__all__ = ["AlgoSpec", "ReplicationPolicy"]


class ReplicationPolicy(Enum):
    """What `instances` of a program means.

    interleaved: every chunk is divided among so many copies of each thread block.
    none: the program is taken as it is; its author has written the instances out.
    """

    interleaved = "interleaved"
    none = "none"


@dataclass
class AlgoSpec:
    """What a function that writes a program is told.

    Sizes are bytes: an algorithm serves messages of `min_message_size` to `max_message_size`.
    """

    name: str
    collective: Collective
    nranks_per_node: int
    world_size: int
    in_place: bool
    instances: int
    protocol: str
    instr_fusion: bool = True
    auto_sync: bool = True
    replication_policy: ReplicationPolicy = ReplicationPolicy.interleaved
    reuse_resources: bool = False
    num_threads_per_block: int = 1024
    use_double_scratch_buffer: bool = False
    buffer_alignment: int = 16
    min_message_size: int = 0
    max_message_size: int = 2**64 - 1
    tags: dict[str, int] = field(default_factory=dict)
