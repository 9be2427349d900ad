"""Switch channels: the same chunks of several ranks at once."""

from __future__ import annotations

from collections.abc import Sequence

from mscclpp.language.rank import check_chunks, check_reduction
from mscclpp.language.record import current_record
from mscclpp.language.source import Call
from mscclpp.language.types import (
    BufferType,
    ChannelType,
    Chunk,
    ReduceOperationType,
    SwitchChunk,
)


class SwitchChannel:
    """Several ranks' buffers of one type, reached at once: the same chunks of each.

    Reducing reads the chunks of all ranks, broadcasting writes them on all ranks. It needs no
    multicast: that is how a program says it, not how it is done.
    """

    channel_type = ChannelType.switch

    def __init__(self, rank_list: Sequence[int], buffer_type: BufferType) -> None:
        call = Call("SwitchChannel")
        self._record = current_record(call)
        ranks = call.listed("rank_list", rank_list)
        self.rank_list = tuple(self._record.rank(call, rank) for rank in ranks)
        if not self.rank_list or len(set(self.rank_list)) < len(self.rank_list):
            call.fail(f"rank_list must name ranks, each once, not {ranks}")
        if not isinstance(buffer_type, BufferType):
            call.fail(f"buffer_type must be a BufferType, not {buffer_type!r}")
        self.buffer_type = buffer_type
        self._ids: dict[int, int] = {}
        for rank in self.rank_list:
            switches = self._record.ranks[rank].switches
            self._ids[rank] = len(switches)
            switches.append((buffer_type, self.rank_list))

    def at_rank(self, rank: int) -> SwitchChannelRankView:
        """The channel as that rank uses it."""
        if rank not in self.rank_list:
            Call("SwitchChannel.at_rank").fail(f"rank {rank} is not one of {list(self.rank_list)}")
        return SwitchChannelRankView(self, rank)

    def chunk(self, call: Call, rank: int, index: int, size: int) -> SwitchChunk:
        """Chunks of all ranks. Whether all have so many is checked when all scratch is known."""
        for what, value, least in (("buffer_offset", index, 0), ("size", size, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                call.fail(f"{what} must be a number of chunks, not {value!r}")
        return SwitchChunk(self._ids[rank], index, size)


class SwitchChannelRankView:
    """A switch channel, used by one rank."""

    def __init__(self, channel: SwitchChannel, rank: int) -> None:
        self._channel = channel
        self._record = channel._record
        self.rank = rank

    def reduce(
        self,
        buffer_offset: int,
        size: int,
        dst_chunk: Chunk,
        tb: int,
        reduce_op: ReduceOperationType = ReduceOperationType.sum,
    ) -> None:
        """Reduces the chunks from `buffer_offset` on of all ranks into one of this rank."""
        call = Call("SwitchChannel.reduce", self.rank)
        check_reduction(call, (dst_chunk,), reduce_op)
        src = self._both(call, buffer_offset, size, dst_chunk)
        self._record.emit(
            call,
            "glre",
            tb,
            src=[src],
            dst=[dst_chunk],
            channel_type=ChannelType.switch,
            reduce_op=reduce_op,
        )

    def broadcast(self, src_chunk: Chunk, buffer_offset: int, size: int, tb: int) -> None:
        """Copies a chunk of this rank to the chunks from `buffer_offset` on of all ranks."""
        self._store(
            Call("SwitchChannel.broadcast", self.rank), "gstore", src_chunk, buffer_offset, size, tb
        )

    def broadcast_packets(self, src_chunk: Chunk, buffer_offset: int, size: int, tb: int) -> None:
        """Copies data of this rank to scratch of all ranks, as packets."""
        call = Call("SwitchChannel.broadcast_packets", self.rank)
        if self._channel.buffer_type is not BufferType.scratch:
            call.fail(f"packets are in scratch only; this channel is one of all ranks' "
                      f"{self._channel.buffer_type.name}")  # fmt: skip
        self._store(call, "gstorepkt", src_chunk, buffer_offset, size, tb)

    def _store(self, call: Call, name: str, src: Chunk, offset: int, size: int, tb: int) -> None:
        dst = self._both(call, offset, size, src)
        self._record.emit(call, name, tb, src=[src], dst=[dst], channel_type=ChannelType.switch)

    def _both(self, call: Call, offset: int, size: int, local: Chunk) -> SwitchChunk:
        check_chunks(call, self.rank, local)
        chunk = self._channel.chunk(call, self.rank, offset, size)
        if local.size != size:
            call.fail(f"the size is {size}, but the chunk is {local}")
        return chunk
