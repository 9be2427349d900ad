"""Channels: how the thread blocks of a rank reach other ranks."""

from __future__ import annotations

from collections.abc import Sequence

from mscclpp.language.rank import check_chunks, check_packets, check_reduction, check_sizes
from mscclpp.language.record import current_record
from mscclpp.language.source import Call
from mscclpp.language.switch_channel import SwitchChannel, SwitchChannelRankView
from mscclpp.language.thread_block_group import ThreadBlockGroup
from mscclpp.language.types import (
    BufferType,
    ChannelType,
    Chunk,
    ReduceOperationType,
    SyncType,
)

__all__ = [
    "BufferType",
    "ChannelType",
    "Chunk",
    "MemoryChannel",
    "PortChannel",
    "ReduceOperationType",
    "SwitchChannel",
    "SwitchChannelRankView",
    "SyncType",
    "ThreadBlockGroup",
]


class _PairChannel:
    """An end of a connection: operations on it are executed by `src_rank`, towards `dst_rank`."""

    channel_type: ChannelType

    def __init__(self, dst_rank: int, src_rank: int) -> None:
        call = Call(type(self).__name__)
        self._record = current_record(call)
        self.dst_rank = self._record.rank(call, dst_rank, "dst_rank")
        self.src_rank = self._record.rank(call, src_rank, "src_rank")
        if dst_rank == src_rank:
            call.fail(f"a channel leads to another rank, not from {src_rank} to itself")
        connected = self._record.ranks[src_rank].connected_to[self.channel_type]
        self.channel_id = len(connected)
        connected.append(dst_rank)

    def _call(self, what: str) -> Call:
        return Call(f"{type(self).__name__}.{what}", self.src_rank)

    def _sync(self, call: Call, name: str, tb: int, data_sync: SyncType) -> None:
        self._record.emit(
            call,
            name,
            tb,
            channel_type=self.channel_type,
            channel=self.channel_id,
            data_sync=data_sync,
        )

    def _move(
        self,
        call: Call,
        name: str,
        dst: Chunk,
        src: Chunk,
        tb: int | None,
        tb_group: ThreadBlockGroup | None = None,
        names_channel: bool = False,
    ) -> None:
        check_sizes(call, dst, src)
        self._record.emit(
            call,
            name,
            tb,
            tb_group,
            src=[src],
            dst=[dst],
            channel_type=self.channel_type,
            channel=self.channel_id if names_channel else None,
        )

    def _check_there(self, call: Call, remote: object, local: object) -> None:
        check_chunks(call, self.dst_rank, remote, what="remote chunk")
        check_chunks(call, self.src_rank, local, what="local chunk")


class MemoryChannel(_PairChannel):
    """The threads of a block of `src_rank` load and store memory of `dst_rank`."""

    channel_type = ChannelType.memory

    def signal(self, tb: int, data_sync: SyncType = SyncType.both, relaxed: bool = False) -> None:
        """Tells the other end; what was put before is there when the other end has waited.

        A relaxed signal only counts: it orders no data.
        """
        call = self._call("signal")
        self._sync(call, "rlxsignal" if call.flag("relaxed", relaxed) else "signal", tb, data_sync)

    def wait(self, tb: int, data_sync: SyncType = SyncType.both, relaxed: bool = False) -> None:
        """Waits for a signal of the other end."""
        call = self._call("wait")
        self._sync(call, "rlxwait" if call.flag("relaxed", relaxed) else "wait", tb, data_sync)

    def put(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
    ) -> None:
        """Copies a chunk of this rank to the other one."""
        call = self._call("put")
        self._check_there(call, dst_chunk, src_chunk)
        self._move(call, "put", dst_chunk, src_chunk, tb, tb_group)

    def get(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
    ) -> None:
        """Copies a chunk of the other rank to this one."""
        call = self._call("get")
        self._check_there(call, src_chunk, dst_chunk)
        self._move(call, "get", dst_chunk, src_chunk, tb, tb_group)

    def put_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
    ) -> None:
        """Copies data of this rank to the other's scratch, as packets."""
        call = self._call("put_packets")
        self._check_there(call, dst_chunk, src_chunk)
        check_packets(call, dst_chunk)
        self._move(call, "ppkt", dst_chunk, src_chunk, tb, tb_group)

    def read_put_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
    ) -> None:
        """Sends packets on, from this rank's scratch to the other's, as they arrive."""
        call = self._call("read_put_packets")
        self._check_there(call, dst_chunk, src_chunk)
        check_packets(call, src_chunk)
        check_packets(call, dst_chunk)
        self._move(call, "rppkt", dst_chunk, src_chunk, tb, tb_group)

    def reduce(
        self,
        local_src_chunk: Chunk,
        remote_src_chunks: Sequence[Chunk],
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        local_dst_chunk: Chunk | None = None,
        reduce_op: ReduceOperationType = ReduceOperationType.sum,
    ) -> None:
        """Reduces a chunk of this rank and some of the other's into `local_dst_chunk`, or into
        `local_src_chunk` if there is none."""
        call = self._call("reduce")
        dst = local_src_chunk if local_dst_chunk is None else local_dst_chunk
        remote_src_chunks = call.listed("remote_src_chunks", remote_src_chunks)
        check_chunks(call, self.src_rank, local_src_chunk, dst, what="local chunk")
        check_chunks(call, self.dst_rank, *remote_src_chunks, what="remote chunk")
        check_reduction(call, remote_src_chunks, reduce_op)
        check_sizes(call, dst, local_src_chunk, *remote_src_chunks)
        self._record.emit(
            call,
            "rre",
            tb,
            tb_group,
            src=[local_src_chunk, *remote_src_chunks],
            dst=[dst],
            channel_type=self.channel_type,
            reduce_op=reduce_op,
        )


class PortChannel(_PairChannel):
    """A block of `src_rank` asks a host thread to copy to memory of `dst_rank`.

    A chunk that is put is read at any time until `flush` has returned.
    """

    channel_type = ChannelType.port

    def signal(self, tb: int, data_sync: SyncType = SyncType.both) -> None:
        """Tells the other end; what was put before is there when the other end has waited."""
        self._sync(self._call("signal"), "signal", tb, data_sync)

    def wait(self, tb: int, data_sync: SyncType = SyncType.both) -> None:
        """Waits for a signal of the other end."""
        self._sync(self._call("wait"), "wait", tb, data_sync)

    def flush(self, tb: int, data_sync: SyncType = SyncType.both) -> None:
        """Waits until all that was put has left: its sources may be written again."""
        self._sync(self._call("flush"), "flush", tb, data_sync)

    def put(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int) -> None:
        """Copies a chunk of this rank to the other one."""
        self._put("put", "put", dst_chunk, src_chunk, tb)

    def put_with_signal(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int) -> None:
        """`put`, then `signal`."""
        self._put("put_with_signal", "pws", dst_chunk, src_chunk, tb)

    def put_with_signal_and_flush(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int) -> None:
        """`put`, then `signal`, then `flush`."""
        self._put("put_with_signal_and_flush", "pwsf", dst_chunk, src_chunk, tb)

    def put_packets(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int) -> None:
        """Copies packets of this rank's scratch to the other's.

        The host thread copies bytes as they are. So the source must be packets: what
        `Rank.copy_packets` has made of data, or what arrived as packets.
        """
        call = self._call("put_packets")
        if isinstance(src_chunk, Chunk) and src_chunk.buffer is not BufferType.scratch:
            call.fail(
                f"a port copies bytes as they are, and {src_chunk} is data, no packets: "
                "make packets of it in scratch first, with Rank.copy_packets"
            )
        check_packets(call, dst_chunk)
        self._put("put_packets", "ppkt", dst_chunk, src_chunk, tb)

    def read_put_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
    ) -> None:
        """Waits for packets in this rank's scratch, and sends them on to the other's."""
        call = self._call("read_put_packets")
        self._check_there(call, dst_chunk, src_chunk)
        check_packets(call, src_chunk)
        check_packets(call, dst_chunk)
        self._move(call, "rppkt", dst_chunk, src_chunk, tb, tb_group, names_channel=True)

    def _put(self, what: str, name: str, dst: Chunk, src: Chunk, tb: int) -> None:
        call = self._call(what)
        self._check_there(call, dst, src)
        self._move(call, name, dst, src, tb, names_channel=True)
