"""The functions of a device window for kernels in Triton: see TorchCommDeviceWindow.hpp.

A program of Triton is a block, all of whose threads make a call. Loads, fences and readings of the
clock are those of each thread. Stores and atomic operations of a scalar are those of the first
thread, and what an atomic operation returns is what that thread got, on all of them: every branch
hangs on such results, on arguments, or on what never changes.
"""

import triton
import triton.language as tl

from torchcomms.triton import _layout as layout
from torchcomms.triton._copy import copy_bytes
from torchcomms.triton._layout import ADD, GE, OK, SET
from torchcomms.triton._machine import fence_system
from torchcomms.triton._state import (
    check_number,
    check_range,
    check_rank,
    counter_word,
    field,
    num_ranks,
    peer_field,
    pointer,
    rank,
    word_of,
    words_of,
)
from torchcomms.triton._wait import sum_of, wait


@triton.jit
def base(window):
    """The address of this rank's memory, an int64: `.to(tl.pointer_type(tl.float32))` makes a
    pointer of it."""
    return peer_field(window, rank(window), layout.PEER_BASE)


@triton.jit
def size(window):
    """The bytes of this rank's memory."""
    return peer_field(window, rank(window), layout.PEER_SIZE)


@triton.jit
def get_nvlink_address(window, peer):
    """The address at which this GPU loads from the memory of a rank and stores to it, an int64; 0
    if there is no such rank."""
    address = tl.cast(0, tl.int64)
    if word_of(peer) < word_of(num_ranks(window)):
        address = peer_field(window, peer, layout.PEER_BASE)
    return address


@triton.jit
def put_block(window, dst_offset, buffer, src_offset, dst_rank, bytes, signal_id=-1, counter_id=-1):
    """Writes `bytes` of a buffer, from byte `src_offset` on, at byte `dst_offset` of the memory of
    `dst_rank`, behind all that the program has stored before.

    Adds 1 to its signal `signal_id`, behind the data, and to the counter `counter_id` here; -1: to
    none.

    Args:
        window: the address that `TorchCommWindow.get_device_window` gives.
        buffer: the address that `TorchCommWindow.register_local_buffer` gives.
    """
    status = check_rank(window, dst_rank)
    if status == OK:
        there = peer_field(window, dst_rank, layout.PEER_SIZE)
        status = check_range(window, dst_offset, bytes, there, layout.DESTINATION, dst_rank)
    if status == OK:
        here = field(buffer, layout.BUFFER_SIZE)
        status = check_range(window, src_offset, bytes, here, layout.SOURCE, dst_rank)
    if status == OK and signal_id != -1:
        status = check_number(window, signal_id, layout.STATE_SIGNALS, layout.SIGNAL, dst_rank)
    if status == OK and counter_id != -1:
        status = check_number(window, counter_id, layout.STATE_COUNTERS, layout.COUNTER, dst_rank)
    if status == OK:
        to = peer_field(window, dst_rank, layout.PEER_BASE) + tl.cast(dst_offset, tl.int64)
        origin = field(buffer, layout.BUFFER_BASE) + tl.cast(src_offset, tl.int64)
        # Other threads may have stored what this one loads.
        tl.debug_barrier()
        copy_bytes(to, origin, tl.cast(bytes, tl.int64))
        # The stores of all threads come before the releases of the first one, which has met them.
        tl.debug_barrier()
        if signal_id != -1:
            words = words_of(window, dst_rank, signal_id)
            tl.atomic_add(words + rank(window), 1, sem="release", scope="sys")
        if counter_id != -1:
            tl.atomic_add(counter_word(window, counter_id), 1, sem="release", scope="sys")
    return status


@triton.jit
def signal_block(window, peer, signal_id, op: tl.constexpr = ADD, value=1):
    """Changes this rank's word of signal `signal_id` of `peer`, behind all that the program has put
    and stored.

    Args:
        op: `ADD`, or `SET`.
    """
    tl.static_assert(op >= SET and op <= ADD, "op is SET or ADD")
    status = check_rank(window, peer)
    if status == OK:
        status = check_number(window, signal_id, layout.STATE_SIGNALS, layout.SIGNAL, peer)
    if status == OK:
        word = words_of(window, peer, signal_id) + rank(window)
        # The first thread releases what all threads have stored, which it has met.
        tl.debug_barrier()
        if op == ADD:
            tl.atomic_add(word, word_of(value), sem="release", scope="sys")
        else:
            tl.atomic_xchg(word, word_of(value), sem="release", scope="sys")
    return status


@triton.jit
def wait_signal_block(window, signal_id, op: tl.constexpr, value):
    """Waits until the value of signal `signal_id` of this rank, the sum of the words of all ranks,
    compares so.

    Args:
        op: `EQ`, `NE`, `LT`, `LE`, `GT` or `GE`, without a sign.
    """
    status = check_number(window, signal_id, layout.STATE_SIGNALS, layout.SIGNAL)
    if status == OK:
        words, ranks = words_of(window, rank(window), signal_id), num_ranks(window)
        status = wait(window, words, ranks, op, value, layout.SIGNAL, -1, signal_id)
    return status


@triton.jit
def wait_signal_from_block(window, peer, signal_id, op: tl.constexpr, value):
    """The same of the word of `peer` alone."""
    status = check_rank(window, peer)
    if status == OK:
        status = check_number(window, signal_id, layout.STATE_SIGNALS, layout.SIGNAL, peer)
    if status == OK:
        word = words_of(window, rank(window), signal_id) + peer
        status = wait(window, word, 1, op, value, layout.SIGNAL, peer, signal_id)
    return status


@triton.jit
def read_signal(window, signal_id):
    """The value of a signal of this rank, a uint64; 0 if there is no such signal."""
    value = tl.cast(0, tl.uint64)
    if check_number(window, signal_id, layout.STATE_SIGNALS, layout.SIGNAL) == OK:
        value = sum_of(words_of(window, rank(window), signal_id), num_ranks(window))
    return value


@triton.jit
def reset_signal(window, signal_id):
    """Sets a signal of this rank to 0. No rank sends it meanwhile."""
    status = check_number(window, signal_id, layout.STATE_SIGNALS, layout.SIGNAL)
    if status == OK:
        words = words_of(window, rank(window), signal_id)
        tl.debug_barrier()
        for r in range(num_ranks(window)):
            tl.atomic_xchg(words + r, 0, sem="release", scope="sys")
    return status


@triton.jit
def wait_counter_block(window, counter_id, op: tl.constexpr, value):
    """Waits until a counter of this rank compares so."""
    status = check_number(window, counter_id, layout.STATE_COUNTERS, layout.COUNTER)
    if status == OK:
        word, here = counter_word(window, counter_id), rank(window)
        status = wait(window, word, 1, op, value, layout.COUNTER, here, counter_id)
    return status


@triton.jit
def read_counter(window, counter_id):
    """The value of a counter, a uint64; 0 if there is no such counter."""
    value = tl.cast(0, tl.uint64)
    if check_number(window, counter_id, layout.STATE_COUNTERS, layout.COUNTER) == OK:
        value = sum_of(counter_word(window, counter_id), 1)
    return value


@triton.jit
def reset_counter(window, counter_id):
    """Sets a counter to 0. No put counts there meanwhile."""
    status = check_number(window, counter_id, layout.STATE_COUNTERS, layout.COUNTER)
    if status == OK:
        tl.debug_barrier()
        tl.atomic_xchg(counter_word(window, counter_id), 0, sem="release", scope="sys")
    return status


@triton.jit
def fence():
    """What the program has read and written before comes before what it does later, for all
    GPUs."""
    # A barrier on either side, as threads that go on need not be those that came.
    tl.debug_barrier()
    fence_system()
    tl.debug_barrier()


@triton.jit
def flush_block(window):
    """Ends when all that the program has put is there, and its buffers may be written again."""
    fence()
    return tl.cast(OK, tl.int32)


@triton.jit
def barrier_block(window, barrier_id):
    """Waits until all ranks have come to the barrier of this number, each in one program at a time.
    What a rank's program has put and stored before is seen by all after it."""
    status = check_number(window, barrier_id, layout.STATE_BARRIERS, layout.BARRIER)
    if status == OK:
        # Words of barriers are behind those of signals.
        number = field(window, layout.STATE_SIGNALS) + barrier_id
        rounds = pointer(
            field(window, layout.STATE_ROUNDS), tl.cast(barrier_id, tl.int64) * 8, tl.uint64
        )
        round = tl.atomic_add(rounds, 1, sem="relaxed", scope="gpu") + 1
        # The first thread releases what all threads have stored, which it has met.
        tl.debug_barrier()
        here, ranks = rank(window), num_ranks(window)
        for r in range(ranks):
            tl.atomic_xchg(words_of(window, r, number) + here, round, sem="release", scope="sys")
        arrived = words_of(window, here, number)
        peer = 0
        while (status == OK) & (peer < ranks):
            status = wait(window, arrived + peer, 1, GE, round, layout.BARRIER, peer, barrier_id)
            peer += 1
    return status
