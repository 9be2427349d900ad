"""Waits, which end: by the timeout, by an abort, or when the window has failed."""

import triton
import triton.language as tl

from torchcomms.triton import _layout as layout
from torchcomms.triton._layout import ABORTED, EQ, GE, GT, LE, LT, NE, OK, TIMED_OUT
from torchcomms.triton._machine import nanoseconds
from torchcomms.triton._state import fail, field, pointer, word_of

# As often as in C++ does a wait look at the clock and at memory of the host.
_LOOK_EVERY_NANOS = tl.constexpr(1_000_000)
_POLLS_PER_LOOK = tl.constexpr(64)


@triton.jit
def sum_of(words, count):
    """Of words that others write meanwhile."""
    total = tl.cast(0, tl.uint64)
    # Not a load, which each thread makes for itself, and of which each could get another value. The
    # first thread acquires the word, and hands it to the others by a barrier: what they load later
    # comes behind what the sender has released.
    for r in range(count):
        total += tl.atomic_add(words + r, 0, sem="acquire", scope="sys")
    return total


@triton.jit
def _holds(op: tl.constexpr, there, value):
    tl.static_assert(op >= EQ and op <= GE, "op is one of EQ, NE, LT, LE, GT, GE")
    if op == EQ:
        result = there == value
    elif op == NE:
        result = there != value
    elif op == LT:
        result = there < value
    elif op == LE:
        result = there <= value
    elif op == GT:
        result = there > value
    else:
        result = there >= value
    return result


@triton.jit
def wait(window, words, count, op: tl.constexpr, value, what: tl.constexpr, peer, number):
    """Waits until the sum of these words compares so, the window has failed, the communicator is
    aborted, or its timeout has passed. The first thread looks at the clock and at the host."""
    failed = pointer(field(window, layout.STATE_FAILED), 0, tl.uint32)
    abort = pointer(field(window, layout.STATE_REPORT), layout.REPORT_ABORT, tl.int32)
    timeout = field(window, layout.STATE_TIMEOUT_NANOS)
    value, number = word_of(value), word_of(number)
    began = nanoseconds()
    looked = began
    polls = 0
    status = tl.cast(OK, tl.int32)
    while (status == OK) & (_holds(op, sum_of(words, count), value) == 0):
        polls += 1
        if polls % _POLLS_PER_LOOK == 0:
            now = nanoseconds()
            due = now - looked >= _LOOK_EVERY_NANOS
            looked = tl.where(due, now, looked)
            aborted = tl.load(abort, mask=due, other=0, volatile=True) != 0
            told = tl.cast(tl.where(aborted, ABORTED, OK), tl.uint32)
            tl.atomic_cas(failed, tl.cast(OK, tl.uint32), told, sem="relaxed", scope="gpu")
            late = due & (timeout != 0) & (now - began > timeout)
            fail(window, late, TIMED_OUT, what, peer, number, 0, 0)
            status = tl.cast(tl.atomic_add(failed, 0, sem="relaxed", scope="gpu"), tl.int32)
    return status
