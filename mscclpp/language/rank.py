"""Ranks: their buffers, and what their thread blocks do with them."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from mscclpp.language.record import Record, current_record
from mscclpp.language.source import Call
from mscclpp.language.thread_block_group import ThreadBlockGroup, checked_blocks
from mscclpp.language.types import BufferType, Chunk, ReduceOperationType, SyncType

__all__ = [
    "BaseBuffer",
    "Buffer",
    "BufferType",
    "Chunk",
    "Rank",
    "ReduceOperationType",
    "Semaphore",
    "SyncType",
    "ThreadBlockGroup",
]

_MOST = 1 << 24  # of chunks, and of a semaphore's counts: what the engine takes


class BaseBuffer:
    """`size` chunks of a buffer of a rank. `buffer[a:b]` names some of them."""

    def __init__(self, rank: int, buffer_type: BufferType, offset: int, size: int) -> None:
        self.rank = rank
        self.buffer_type = buffer_type
        self.offset = offset
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, key: slice | int) -> Chunk:
        call = Call(f"{self.buffer_type.name} buffer", self.rank)
        if isinstance(key, slice):
            start = 0 if key.start is None else key.start
            stop = self.size if key.stop is None else key.stop
            if key.step not in (None, 1):
                call.fail(f"chunks lie side by side; the step {key.step} is not possible")
        else:
            start, stop = key, None
        try:
            start = operator.index(start)
            stop = start + 1 if stop is None else operator.index(stop)
        except TypeError:
            call.fail(f"chunks have whole numbers, not {key!r}")
        if not 0 <= start < stop <= self.size:
            call.fail(f"[{start}:{stop}] is not within its {self.size} chunks, or is empty")
        return Chunk(self.rank, self.buffer_type, self.offset + start, stop - start)


class Buffer(BaseBuffer):
    """`size` more chunks of scratch on a rank."""

    def __init__(self, rank: int, size: int) -> None:
        call = Call("Buffer", rank)
        record = current_record(call)
        of_rank = record.ranks[record.rank(call, rank)]
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            call.fail(f"size must be a positive number of chunks, not {size!r}")
        if of_rank.scratch_chunks + size > _MOST:
            call.fail(f"a rank has at most {_MOST} chunks of scratch; this makes more")
        super().__init__(rank, BufferType.scratch, of_rank.scratch_chunks, size)
        of_rank.scratch_chunks += size


class Semaphore:
    """A counter of a rank: `acquire` waits until it is not 0 and takes one, `release` adds one."""

    def __init__(self, rank: int, initial_value: int) -> None:
        call = Call("Semaphore", rank)
        self._record = current_record(call)
        self.rank = self._record.rank(call, rank)
        if isinstance(initial_value, bool) or not isinstance(initial_value, int):
            call.fail(f"initial_value must be an integer, not {initial_value!r}")
        if initial_value < 0:
            call.fail(f"initial_value must not be negative: {initial_value}")
        if initial_value > _MOST:
            call.fail(f"initial_value must not be above {_MOST}: {initial_value}")
        self.initial_value = initial_value
        semaphores = self._record.ranks[rank].semaphores
        self.id = len(semaphores)
        semaphores.append(initial_value)

    def acquire(self, tb: int, data_sync: SyncType = SyncType.both) -> None:
        call = Call("Semaphore.acquire", self.rank)
        self._record.emit(call, "sem_acquire", tb, data_sync=data_sync, semaphore_ids=(self.id,))

    def release(self, tb: int, data_sync: SyncType = SyncType.both) -> None:
        call = Call("Semaphore.release", self.rank)
        self._record.emit(call, "sem_release", tb, data_sync=data_sync, semaphore_ids=(self.id,))


class Rank:
    """One rank of the program that is being written."""

    def __init__(self, rank: int) -> None:
        call = Call("Rank")
        self._record: Record = current_record(call)
        self.rank = self._record.rank(call, rank)

    def get_input_buffer(self) -> BaseBuffer:
        return BaseBuffer(self.rank, BufferType.input, 0, self._record.chunks[0])

    def get_output_buffer(self) -> BaseBuffer:
        return BaseBuffer(self.rank, BufferType.output, 0, self._record.chunks[1])

    def copy(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
    ) -> None:
        """Copies chunks of this rank."""
        self._copy(Call("Rank.copy", self.rank), "copy", dst_chunk, src_chunk, tb, tb_group)

    def unpack_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
    ) -> None:
        """Copies packets, as they arrive in scratch, as data."""
        call = Call("Rank.unpack_packets", self.rank)
        check_packets(call, src_chunk)
        self._copy(call, "upkt", dst_chunk, src_chunk, tb, tb_group)

    def copy_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
    ) -> None:
        """Copies data to scratch, as packets."""
        call = Call("Rank.copy_packets", self.rank)
        check_packets(call, dst_chunk)
        self._copy(call, "cpkt", dst_chunk, src_chunk, tb, tb_group)

    def _copy(
        self,
        call: Call,
        name: str,
        dst: Chunk,
        src: Chunk,
        tb: int | None,
        tb_group: ThreadBlockGroup | None,
    ) -> None:
        check_chunks(call, self.rank, dst, src)
        check_sizes(call, dst, src)
        self._record.emit(call, name, tb, tb_group, src=[src], dst=[dst])

    def reduce(
        self,
        src_chunk: Chunk,
        other_chunks: Sequence[Chunk],
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        dst_chunk: Chunk | None = None,
        reduce_op: ReduceOperationType = ReduceOperationType.sum,
        packet: bool = False,
    ) -> None:
        """Reduces chunks of this rank into `dst_chunk`, or into `src_chunk` if there is none.

        With `packet`, the other chunks are packets in scratch, taken as they arrive.
        """
        call = Call("Rank.reduce", self.rank)
        dst = src_chunk if dst_chunk is None else dst_chunk
        other_chunks = call.listed("other_chunks", other_chunks)
        check_chunks(call, self.rank, dst, src_chunk, *other_chunks)
        check_sizes(call, dst, src_chunk, *other_chunks)
        check_reduction(call, other_chunks, reduce_op)
        for chunk in other_chunks if packet else ():
            check_packets(call, chunk)
        self._record.emit(
            call,
            "repkt" if packet else "re",
            tb,
            tb_group,
            src=[src_chunk, *other_chunks],
            dst=[dst],
            reduce_op=reduce_op,
        )

    def barrier(self, tb_list: Sequence[int]) -> None:
        """The thread blocks of the list wait for each other; all before is done for all after."""
        call = Call("Rank.barrier", self.rank)
        blocks = checked_blocks(call, tb_list)
        if len(blocks) == 1:
            self._record.emit(call, "nop", blocks[0])
            return
        barriers = self._record.ranks[self.rank].barriers
        number = barriers.setdefault(frozenset(blocks), len(barriers))
        for tb in blocks:
            self._record.emit(call, "barrier", tb, barrier_id=number, num_threadblocks=len(blocks))


def check_chunks(call: Call, rank: int, *chunks: object, what: str = "chunk") -> None:
    """The chunks are chunks, and of that rank."""
    for chunk in chunks:
        if not isinstance(chunk, Chunk):
            call.fail(f"a {what} must be part of a buffer, as buffer[0:1], not {chunk!r}")
        if chunk.rank != rank:
            call.fail(f"the {what} {chunk} is not of rank {rank}")


def check_sizes(call: Call, *chunks: Chunk) -> None:
    if len({chunk.size for chunk in chunks}) > 1:
        call.fail("the chunks differ in size: " + ", ".join(str(chunk) for chunk in chunks))


def check_packets(call: Call, chunk: Chunk) -> None:
    """Packets are in scratch only: they take twice the bytes."""
    if isinstance(chunk, Chunk) and chunk.buffer is not BufferType.scratch:
        call.fail(f"packets are in scratch only, which {chunk} is not")


def check_reduction(call: Call, others: Sequence[Chunk], reduce_op: object) -> None:
    if not others:
        call.fail("there is nothing to reduce with")
    if not isinstance(reduce_op, ReduceOperationType):
        call.fail(f"reduce_op must be a ReduceOperationType, not {reduce_op!r}")
