"""What a program has said so far: per rank and thread block, operations and what they refer to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from mscclpp.language.plan import (
    ChannelRefs,
    Channels,
    Gpu,
    GroupPlace,
    IterContext,
    LocalPart,
    Operation,
    Part,
    Plan,
    RankGroup,
    RemoteBuffer,
    RemoteBufferRefs,
    RemotePart,
    SemaphoreInit,
    SwitchChannels,
    SwitchPart,
    ThreadBlock,
)
from mscclpp.language.source import Call, Location, ProgramError
from mscclpp.language.thread_block_group import ThreadBlockGroup, checked_block
from mscclpp.language.types import BufferType, ChannelType, Chunk, SwitchChunk, SyncType

_CHANNELS_OF_A_PAIR = (ChannelType.memory, ChannelType.port)


@dataclass
class BlockRecord:
    ops: list[Operation] = field(default_factory=list)
    loop: list[Operation] = field(default_factory=list)  # the body of the loop that is open
    channels: dict[ChannelType, list[int]] = field(default_factory=lambda: defaultdict(list))
    remote_buffers: dict[ChannelType, list[int]] = field(default_factory=lambda: defaultdict(list))


@dataclass
class RankRecord:
    scratch_chunks: int = 0
    blocks: dict[int, BlockRecord] = field(default_factory=lambda: defaultdict(BlockRecord))
    connected_to: dict[ChannelType, list[int]] = field(default_factory=lambda: defaultdict(list))
    switches: list[tuple[BufferType, tuple[int, ...]]] = field(default_factory=list)
    remote_buffers: dict[tuple[int, BufferType], set[ChannelType]] = field(default_factory=dict)
    semaphores: list[int] = field(default_factory=list)
    barriers: dict[frozenset[int], int] = field(default_factory=dict)  # numbers by thread blocks


class Record:
    """A program as the user's calls make it. `plan` gives it as data, before any pass."""

    def __init__(self, name: str, ranks: int, chunks: tuple[int, int], location: Location) -> None:
        self.name = name
        self.ranks = [RankRecord() for _ in range(ranks)]
        self.chunks = chunks  # of the input and of the output of each rank
        self.location = location
        self.compile: Callable[[], Plan] = self.plan
        self._loop: Location | None = None

    def rank(self, call: Call, rank: object, what: str = "rank") -> int:
        """A rank's number, checked."""
        if isinstance(rank, bool) or not isinstance(rank, int):
            call.fail(f"{what} must be the number of a rank, not {rank!r}")
        if not 0 <= rank < len(self.ranks):
            call.fail(f"there is no rank {rank}: the program has {len(self.ranks)}")
        return rank

    def begin_loop(self, call: Call) -> None:
        if self._loop is not None:
            raise ProgramError("a loop within a loop: they do not nest", call.location, self._loop)
        self._loop = call.location

    def end_loop(self, unit: int, num_chunks: int) -> None:
        assert self._loop is not None
        for rank in self.ranks:
            for block in rank.blocks.values():
                if block.loop:
                    block.ops.append(
                        Operation(
                            name="pipeline",
                            iter_context=IterContext(unit_size=unit, num_chunks=num_chunks),
                            ops=tuple(block.loop),
                            locations=(self._loop,),
                        )
                    )
                    block.loop = []
        self._loop = None

    def emit(
        self,
        call: Call,
        name: str,
        tb: object,
        tb_group: ThreadBlockGroup | None = None,
        *,
        src: Sequence[Chunk | SwitchChunk] = (),
        dst: Sequence[Chunk | SwitchChunk] = (),
        channel_type: ChannelType | None = None,
        channel: int | None = None,
        data_sync: SyncType = SyncType.none,
        **fields: Any,
    ) -> None:
        """Appends an operation to the thread block, or to each of the group.

        `channel` is the number of the rank's channel that the operation has to name.
        """
        assert call.rank is not None
        if _current.get() is not self:
            call.fail(f"program {self.name!r}, to which this belongs, is not the one that is open")
        if not isinstance(data_sync, SyncType):
            call.fail(f"data_sync must be a SyncType, not {data_sync!r}")
        for number, place in _places(call, tb, tb_group):
            block = self.ranks[call.rank].blocks[number]
            if channel is not None and channel_type is not None:
                fields["channel_ids"] = (_place_of(channel, block.channels[channel_type]),)
            op = Operation(
                name=name,
                src_buff=tuple(self._part(call, block, chunk, channel_type) for chunk in src),
                dst_buff=tuple(self._part(call, block, chunk, channel_type) for chunk in dst),
                channel_type=channel_type,
                tbg_info=place,
                data_sync=data_sync,
                locations=(call.location,),
                **fields,
            )
            (block.ops if self._loop is None else block.loop).append(op)

    def _part(
        self,
        call: Call,
        block: BlockRecord,
        chunk: Chunk | SwitchChunk,
        channel_type: ChannelType | None,
    ) -> Part:
        if isinstance(chunk, SwitchChunk):
            number = _place_of(chunk.channel, block.channels[ChannelType.switch])
            return SwitchPart(switch_channel_id=number, index=chunk.index, size=chunk.size)
        if chunk.index + chunk.size > self._chunks(chunk.rank, chunk.buffer):
            call.fail(f"there is no {chunk}: the program has no such chunks")
        if chunk.rank == call.rank:
            return LocalPart(type=chunk.buffer, index=chunk.index, size=chunk.size)
        assert call.rank is not None
        assert channel_type is not None
        remote = self.ranks[call.rank].remote_buffers
        remote.setdefault((chunk.rank, chunk.buffer), set()).add(channel_type)
        buffer = list(remote).index((chunk.rank, chunk.buffer))
        number = _place_of(buffer, block.remote_buffers[channel_type])
        return RemotePart(buffer_id=number, index=chunk.index, size=chunk.size)

    def _chunks(self, rank: int, buffer: BufferType) -> int:
        if buffer is BufferType.scratch:
            return self.ranks[rank].scratch_chunks
        return self.chunks[buffer is BufferType.output]

    def plan(self) -> Plan:
        """What has been said, as it was said."""
        return Plan(
            name=self.name,
            collective="",
            gpus=tuple(self._gpu(rank, record) for rank, record in enumerate(self.ranks)),
        )

    def _gpu(self, rank: int, record: RankRecord) -> Gpu:
        entries: list[Channels | SwitchChannels] = [
            Channels(channel_type=kind, connected_to=tuple(record.connected_to[kind]))
            for kind in _CHANNELS_OF_A_PAIR
            if record.connected_to[kind]
        ]
        # Switch channels are listed by buffer, and numbered in the order of that list.
        order: list[int] = []
        for buffer in BufferType:
            numbers = [n for n, (kind, _) in enumerate(record.switches) if kind is buffer]
            order += numbers
            groups = (record.switches[n][1] for n in numbers)
            if numbers:
                entries.append(
                    SwitchChannels(
                        channel_type=ChannelType.switch,
                        buffer_type=buffer,
                        rank_groups=tuple(RankGroup(size=len(g), ranks=g) for g in groups),
                    )
                )
        return Gpu(
            id=rank,
            input_chunks=self.chunks[0],
            output_chunks=self.chunks[1],
            scratch_chunks=record.scratch_chunks,
            threadblocks=tuple(
                _block(number, record.blocks.get(number, BlockRecord()), order)
                for number in range(max(record.blocks, default=-1) + 1)
            ),
            channels=tuple(entries),
            remote_buffers=tuple(
                RemoteBuffer(
                    rank=other,
                    type=kind,
                    access_channel_types=tuple(c for c in ChannelType if c in channels),
                )
                for (other, kind), channels in record.remote_buffers.items()
            ),
            semaphores=tuple(SemaphoreInit(init_value=value) for value in record.semaphores),
        )


def _block(number: int, record: BlockRecord, switch_order: list[int]) -> ThreadBlock:
    def ids(kind: ChannelType) -> tuple[int, ...]:
        numbers = record.channels[kind]
        if kind is ChannelType.switch:
            return tuple(switch_order.index(n) for n in numbers)
        return tuple(numbers)

    return ThreadBlock(
        id=number,
        ops=tuple(record.ops),
        channels=tuple(
            ChannelRefs(channel_type=kind, channel_ids=ids(kind))
            for kind in ChannelType
            if record.channels[kind]
        ),
        remote_buffer_refs=tuple(
            RemoteBufferRefs(
                access_channel_type=kind, remote_buffer_ids=tuple(record.remote_buffers[kind])
            )
            for kind in ChannelType
            if record.remote_buffers[kind]
        ),
    )


def _place_of(number: int, numbers: list[int]) -> int:
    """Where a number stands in a list; it is appended if it does not."""
    if number not in numbers:
        numbers.append(number)
    return numbers.index(number)


def _places(
    call: Call, tb: object, tb_group: ThreadBlockGroup | None
) -> list[tuple[int, GroupPlace | None]]:
    if (tb is None) == (tb_group is None):
        call.fail("it needs tb= or tb_group=, one of the two")
    if tb_group is None:
        return [(checked_block(call, tb), None)]
    if not isinstance(tb_group, ThreadBlockGroup):
        call.fail(f"tb_group must be a ThreadBlockGroup, not {tb_group!r}")
    size = len(tb_group.tb_list)
    return [(t, GroupPlace(tb_id=i, tbg_size=size)) for i, t in enumerate(tb_group.tb_list)]


_current: ContextVar[Record | None] = ContextVar("mscclpp_program", default=None)


def current_record(call: Call) -> Record:
    """The program whose `with` is open here; raises ProgramError if there is none."""
    record = _current.get()
    if record is None:
        call.fail("there is no program here: call it inside `with CollectiveProgram(...)`")
    return record


def open_record(call: Call, record: Record) -> None:
    other = _current.get()
    if other is not None:
        raise ProgramError(
            f"program {record.name!r} inside of program {other.name!r}",
            call.location,
            other.location,
        )
    _current.set(record)


def close_record() -> None:
    _current.set(None)
