"""Copies by all threads of a program."""

import triton
import triton.language as tl


@triton.jit
def _copy_units(target, source, count, block: tl.constexpr):
    """`count` units, a block of them at a time."""
    for start in range(0, count, block):
        at = start + tl.arange(0, block)
        tl.store(target + at, tl.load(source + at, mask=at < count), mask=at < count)


@triton.jit
def _copy_small(to, origin, count, block: tl.constexpr):
    target = tl.cast(to, tl.pointer_type(tl.int8))
    source = tl.cast(origin, tl.pointer_type(tl.int8))
    _copy_units(target, source, count, block)


@triton.jit
def copy_bytes(to, origin, count):
    """Any addresses, any number of bytes; 16 at a time where both addresses are equally aligned."""
    if ((to ^ origin) & 15) == 0:
        head = tl.minimum(-to & 15, count)
        body = ((count - head) >> 4) << 4
        _copy_small(to, origin, head, 16)
        # Two words at a time, as the compiler knows that both pointers are multiples of 16 bytes,
        # and by the shifts that the words are an even number.
        target = tl.multiple_of(tl.cast(to + head, tl.pointer_type(tl.int64)), 16)
        source = tl.multiple_of(tl.cast(origin + head, tl.pointer_type(tl.int64)), 16)
        _copy_units(target, source, (body >> 4) << 1, 2048)
        _copy_small(to + head + body, origin + head + body, count - head - body, 16)
    else:
        _copy_small(to, origin, count, 4096)
