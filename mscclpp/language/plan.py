"""Execution plans as data: per rank, thread blocks with operations, and the tables they refer to.

The names of classes' attributes are those of the JSON. Operations refer indirectly: a number in
`channel_ids` is a place in the list of the thread block's `channels` of the operation's type, and
what stands there is a place among the rank's `channels` of that type; a `buffer_id` is a place in
the thread block's `remote_buffer_refs`, and what stands there one in the rank's `remote_buffers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from mscclpp.language.source import Location
from mscclpp.language.types import BufferType, ChannelType, ReduceOperationType, SyncType

_ALWAYS: dict[str, bool] = {"always": True}  # written even if it is empty
_NEVER: dict[str, bool] = {"json": False}


@dataclass(frozen=True, kw_only=True)
class Node:
    """An object of the JSON.

    `layout` has the keys in the order in which they were read, and `extra` what was read under keys
    that have no meaning here, so that a plan that was read is written as it was.
    """

    layout: tuple[str, ...] = field(default=(), compare=False, repr=False, metadata=_NEVER)
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False, metadata=_NEVER)


@dataclass(frozen=True, kw_only=True)
class LocalPart(Node):
    """Chunks of a buffer of the rank itself."""

    type: BufferType
    index: int
    size: int


@dataclass(frozen=True, kw_only=True)
class RemotePart(Node):
    """Chunks of a buffer of another rank."""

    buffer_id: int
    index: int
    size: int


@dataclass(frozen=True, kw_only=True)
class SwitchPart(Node):
    """The same chunks of all ranks of a switch channel."""

    switch_channel_id: int
    index: int
    size: int


Part: TypeAlias = LocalPart | RemotePart | SwitchPart


@dataclass(frozen=True, kw_only=True)
class GroupPlace(Node):
    """Which of the thread blocks that share an operation this one is."""

    tb_id: int
    tbg_size: int


@dataclass(frozen=True, kw_only=True)
class IterContext(Node):
    """Bytes, and chunks, of one iteration of a pipeline."""

    unit_size: int
    num_chunks: int


@dataclass(frozen=True, kw_only=True)
class Operation(Node):
    """One instruction. `mscclpp.language.instructions` says what each name means."""

    name: str
    src_buff: tuple[Part, ...] = ()
    dst_buff: tuple[Part, ...] = ()
    channel_ids: tuple[int, ...] = ()
    channel_type: ChannelType | None = None
    tbg_info: GroupPlace | None = None
    barrier_id: int | None = None
    num_threadblocks: int | None = None
    semaphore_ids: tuple[int, ...] = ()
    iter_context: IterContext | None = None
    ops: tuple[Operation, ...] = ()
    reduce_op: ReduceOperationType | None = None
    # The user's lines that this comes from. They are in the JSON only if that is asked for.
    locations: tuple[Location, ...] = field(default=(), compare=False)
    # Where the threads of the block meet, until `syncs` has made operations of it.
    data_sync: SyncType = field(default=SyncType.none, metadata=_NEVER)


@dataclass(frozen=True, kw_only=True)
class ChannelRefs(Node):
    """The channels of one type that a thread block uses."""

    channel_type: ChannelType
    channel_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class RemoteBufferRefs(Node):
    """The remote buffers that a thread block reaches through channels of one type."""

    access_channel_type: ChannelType
    remote_buffer_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ThreadBlock(Node):
    """What one thread block does, from the first operation to the last."""

    id: int
    ops: tuple[Operation, ...]
    channels: tuple[ChannelRefs, ...] = field(default=(), metadata=_ALWAYS)
    remote_buffer_refs: tuple[RemoteBufferRefs, ...] = field(default=(), metadata=_ALWAYS)


@dataclass(frozen=True, kw_only=True)
class Channels(Node):
    """The channels of a rank of one type: to which rank each leads.

    Of several channels between two ranks, the first of one is the other end of the first of the
    other, and so on.
    """

    channel_type: ChannelType
    connected_to: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class RankGroup(Node):
    size: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class SwitchChannels(Node):
    """The switch channels of a rank over one buffer: which ranks take part in each.

    They are numbered through all entries of a rank.
    """

    channel_type: ChannelType
    buffer_type: BufferType
    rank_groups: tuple[RankGroup, ...]


@dataclass(frozen=True, kw_only=True)
class RemoteBuffer(Node):
    """A buffer of another rank, and the types of channels through which it is reached."""

    rank: int
    type: BufferType
    access_channel_types: tuple[ChannelType, ...]


@dataclass(frozen=True, kw_only=True)
class SemaphoreInit(Node):
    """A semaphore among the thread blocks of a rank."""

    init_value: int


@dataclass(frozen=True, kw_only=True)
class Gpu(Node):
    """What one rank does, and with what."""

    id: int
    input_chunks: int
    output_chunks: int
    scratch_chunks: int
    threadblocks: tuple[ThreadBlock, ...]
    channels: tuple[Channels | SwitchChannels, ...] = field(default=(), metadata=_ALWAYS)
    remote_buffers: tuple[RemoteBuffer, ...] = field(default=(), metadata=_ALWAYS)
    semaphores: tuple[SemaphoreInit, ...] = field(default=(), metadata=_ALWAYS)

    def connections(self, kind: ChannelType) -> tuple[int, ...]:
        """The other ends of the channels of that type, by number."""
        return tuple(
            rank
            for entry in self.channels
            if isinstance(entry, Channels) and entry.channel_type is kind
            for rank in entry.connected_to
        )

    def switches(self) -> tuple[tuple[BufferType, tuple[int, ...]], ...]:
        """The switch channels, by number: over which buffer, and of which ranks."""
        return tuple(
            (entry.buffer_type, group.ranks)
            for entry in self.channels
            if isinstance(entry, SwitchChannels)
            for group in entry.rank_groups
        )

    def chunks(self, kind: BufferType) -> int:
        return {
            BufferType.input: self.input_chunks,
            BufferType.output: self.output_chunks,
            BufferType.scratch: self.scratch_chunks,
        }[kind]


@dataclass(frozen=True, kw_only=True)
class Plan(Node):
    """A program for all ranks."""

    name: str
    collective: str
    protocol: str = field(default="Simple", metadata=_ALWAYS)
    inplace: bool = field(default=False, metadata=_ALWAYS)
    reuse_resources: bool = field(default=False, metadata=_ALWAYS)
    gpus: tuple[Gpu, ...]
    num_threads_per_block: int = field(default=1024, metadata=_ALWAYS)
    use_double_scratch_buffer: bool = field(default=False, metadata=_ALWAYS)
    buffer_alignment: int = field(default=16, metadata=_ALWAYS)
    min_message_size: int = field(default=0, metadata=_ALWAYS)
    max_message_size: int = field(default=2**64 - 1, metadata=_ALWAYS)


Pass: TypeAlias = Callable[[Gpu, ThreadBlock, tuple[Operation, ...]], tuple[Operation, ...]]


def rewritten(plan: Plan, rewrite: Pass) -> Plan:
    """The plan with the operations of every thread block replaced by what `rewrite` makes of them.

    The body of a pipeline is replaced first, then the list that the pipeline is in.
    """

    def all_of(gpu: Gpu, block: ThreadBlock, ops: tuple[Operation, ...]) -> tuple[Operation, ...]:
        inner = tuple(replace(op, ops=all_of(gpu, block, op.ops)) if op.ops else op for op in ops)
        return rewrite(gpu, block, inner)

    return replace(
        plan,
        gpus=tuple(
            replace(
                gpu,
                threadblocks=tuple(
                    replace(block, ops=all_of(gpu, block, block.ops)) for block in gpu.threadblocks
                ),
            )
            for gpu in plan.gpus
        ),
    )
