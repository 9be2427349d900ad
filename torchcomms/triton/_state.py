"""The state of a window in memory, its failure, and arguments that are out of range."""

import triton
import triton.language as tl

from torchcomms.triton import _layout as layout
from torchcomms.triton._layout import OK, OUT_OF_RANGE
from torchcomms.triton._machine import fence_system


@triton.jit
def word_of(number):
    """Of a number below 0 a large one."""
    return tl.cast(tl.cast(number, tl.int64), tl.uint64)


@triton.jit
def pointer(address, offset, kind: tl.constexpr):
    return tl.cast(tl.cast(address, tl.int64) + offset, tl.pointer_type(kind))


@triton.jit
def field(address, offset, kind: tl.constexpr = tl.int64):
    """Of a window, a rank in it, or a buffer: these never change."""
    return tl.load(pointer(address, offset, kind))


@triton.jit
def rank(window):
    """This rank."""
    return field(window, layout.STATE_RANK, tl.int32)


@triton.jit
def num_ranks(window):
    """How many ranks the window has."""
    return field(window, layout.STATE_RANKS, tl.int32)


@triton.jit
def peer_field(window, peer, offset):
    """A field of a rank that there is."""
    at = tl.cast(peer, tl.int64) * layout.SIZE_OF_PEER + offset
    return field(field(window, layout.STATE_PEERS), at)


@triton.jit
def words_of(window, peer, number):
    """Where the words of all ranks begin in a signal of `peer`, or behind signals in a barrier."""
    at = tl.cast(number, tl.int64) * num_ranks(window) * 8
    return pointer(peer_field(window, peer, layout.PEER_WORDS), at, tl.uint64)


@triton.jit
def counter_word(window, counter_id):
    at = tl.cast(counter_id, tl.int64) * 8
    return pointer(field(window, layout.STATE_COUNTS), at, tl.uint64)


@triton.jit
def fail(window, happened, status: tl.constexpr, what, peer, value, limit, bytes):
    """Records the failure, if it is the first of the window. `happened` is what the first thread
    says, and others may say otherwise: no branch depends on it."""
    failed = pointer(field(window, layout.STATE_FAILED), 0, tl.uint32)
    none = tl.cast(0, tl.uint32)
    told = tl.cast(tl.where(happened, status, 0), tl.uint32)
    first = happened & (tl.atomic_cas(failed, none, told, sem="relaxed", scope="gpu") == 0)
    report = field(window, layout.STATE_REPORT)
    tl.store(pointer(report, layout.REPORT_WHAT, tl.int32), what, mask=first)
    tl.store(pointer(report, layout.REPORT_PEER, tl.int32), peer, mask=first)
    tl.store(pointer(report, layout.REPORT_VALUE, tl.uint64), value, mask=first)
    tl.store(pointer(report, layout.REPORT_LIMIT, tl.uint64), limit, mask=first)
    tl.store(pointer(report, layout.REPORT_BYTES, tl.uint64), bytes, mask=first)
    # The host, which acquires the status, sees all of it. A store and no atomic operation, as PCIe
    # need not carry those.
    fence_system()
    tl.store(pointer(report, layout.REPORT_STATUS, tl.int32), status, mask=first)


@triton.jit
def _refuse(window, wrong, what, value, limit, peer=-1, bytes=0):
    """The status of a call that has such an argument."""
    if wrong:
        fail(window, True, OUT_OF_RANGE, what, peer, value, limit, bytes)
    return tl.where(wrong, OUT_OF_RANGE, OK)


@triton.jit
def check_number(window, number, count: tl.constexpr, what: tl.constexpr, peer=-1):
    """That there is a signal, counter or barrier of this number."""
    limit = field(window, count, tl.uint64)
    return _refuse(window, word_of(number) >= limit, what, word_of(number), limit, peer)


@triton.jit
def check_rank(window, peer):
    limit = word_of(num_ranks(window))
    return _refuse(window, word_of(peer) >= limit, layout.RANK, word_of(peer), limit)


@triton.jit
def check_range(window, offset, bytes, size, what: tl.constexpr, peer):
    offset, bytes, size = word_of(offset), word_of(bytes), word_of(size)
    outside = (offset > size) | (bytes > size - offset)
    return _refuse(window, outside, what, offset, size, peer, bytes)
