"""Kernels in Triton that use a device window. Those that device_windows.cu has too take the same
words of 64 bits: the window, a buffer of this rank, and what else is said there."""

import triton
import triton.language as tl

import torchcomms.triton as tct


@triton.jit
def exchange(words):
    """As in CUDA, but each program waits for what the same program of another rank sends: Triton's
    interpreter runs one program after the other."""
    window, buffer = tl.load(words), tl.load(words + 1)
    size, round = tl.load(words + 2), tl.load(words + 3)
    rank, ranks = tct.rank(window), tct.num_ranks(window)
    program = tl.program_id(0)
    target, origin = (rank + program) % ranks, (rank + ranks - program) % ranks
    failures = tct.put_block(window, rank * size, buffer, 0, target, size, 0, 1)
    failures += tct.wait_signal_from_block(window, origin, 0, tct.EQ, round)
    if program == ranks - 1:
        total = ranks * round
        failures += tct.wait_signal_block(window, 0, tct.EQ, total)
        failures += tct.wait_counter_block(window, 1, tct.EQ, total)
        failures += tct.read_signal(window, 0) != total
        failures += tct.read_counter(window, 1) != total
    failures += tct.flush_block(window)
    if failures != 0:
        tl.store(words + 4, 1)


@triton.jit
def pass_on(words):
    window = tl.load(words)
    rank = tct.rank(window)
    following = (rank + 1) % tct.num_ranks(window)
    failures = 0
    for round in range(1, tl.load(words + 2) + 1):
        if rank != 0:
            failures += tct.wait_signal_block(window, 2, tct.GE, round)
        failures += tct.signal_block(window, following, 2, tct.SET, round)
        if rank == 0:
            failures += tct.wait_signal_block(window, 2, tct.GE, round)
        failures += tct.barrier_block(window, 0)
    failures += tct.reset_signal(window, 2)
    failures += tct.reset_counter(window, 1)
    failures += (tct.read_signal(window, 2) != 0) | (tct.read_counter(window, 1) != 0)
    if failures != 0:
        tl.store(words + 4, 1)


@triton.jit
def _number(rank, round, i):
    return (tl.cast(rank, tl.int64) << 56) + (tl.cast(round, tl.int64) << 24) + i


@triton.jit
def ring(words, block: tl.constexpr = 1024):
    """words[3]: the address of the buffer's memory, which is as large as the window."""
    window, buffer = tl.load(words), tl.load(words + 1)
    mine = tl.cast(tl.load(words + 3), tl.pointer_type(tl.int64))
    got = tl.cast(tct.base(window), tl.pointer_type(tl.int64))
    count = tct.size(window) // 8
    rank, ranks = tct.rank(window), tct.num_ranks(window)
    following, previous = (rank + 1) % ranks, (rank + ranks - 1) % ranks
    lanes = tl.arange(0, block)
    wrong = 0
    for round in range(1, tl.load(words + 2) + 1):
        for start in range(0, count, block):
            i = start + lanes
            tl.store(mine + i, _number(rank, round, i), mask=i < count)
        failures = tct.put_block(window, 0, buffer, 0, following, tct.size(window), 0)
        failures += tct.wait_signal_from_block(window, previous, 0, tct.EQ, round)
        for start in range(0, count, block):
            i = start + lanes
            expected = _number(previous, round, i)
            found = tl.load(got + i, mask=i < count, other=0)
            differ = (found != expected) & (i < count)
            wrong += tl.sum(differ.to(tl.int32), axis=0)
        failures += tct.signal_block(window, previous, 1)  # it may come again
        failures += tct.wait_signal_from_block(window, following, 1, tct.EQ, round)
        wrong += failures
    if wrong != 0:
        tl.store(words + 4, wrong)


@triton.jit
def await_in_vain(words):
    window, what = tl.load(words), tl.load(words + 2)
    status = tl.cast(tct.OK, tl.int32)
    if what == 0:
        status = tct.wait_signal_block(window, 1, tct.GE, 7)
    if what == 1:
        status = tct.wait_signal_from_block(window, tl.load(words + 3), 1, tct.GE, 7)
    if what == 2:
        status = tct.barrier_block(window, 0)
    if what == 3:
        status = tct.wait_counter_block(window, 0, tct.GE, 7)
    tl.store(words + 4, 100 + status)


@triton.jit
def misuse(words):
    """words[3]: the bytes of the buffer."""
    window, buffer, what = tl.load(words), tl.load(words + 1), tl.load(words + 2)
    ranks = tct.num_ranks(window)
    other = ranks - 1 - tct.rank(window)
    status = tl.cast(tct.OK, tl.int32)
    if what == 0:
        status = tct.put_block(window, tct.size(window) - 1, buffer, 0, other, 2)
    if what == 1:
        status = tct.put_block(window, 0, buffer, tl.load(words + 3), other, 1)
    if what == 2:
        status = tct.signal_block(window, ranks, 0)
    if what == 3:
        status = tct.signal_block(window, other, -5)
    if what == 4:
        status = tct.barrier_block(window, 1)
    if what == 5:
        status = tct.put_block(window, 0, buffer, 0, other, 8, 0, 1)
    tl.store(words + 4, 100 + status)


@triton.jit
def put_and_signal(window, buffer, dst_offset, src_offset, bytes, signal_id, status):
    """To the next rank, from which others wait for it."""
    rank, ranks = tct.rank(window), tct.num_ranks(window)
    previous = (rank + ranks - 1) % ranks
    told = tct.put_block(
        window, dst_offset, buffer, src_offset, (rank + 1) % ranks, bytes, signal_id
    )
    told += tct.wait_signal_from_block(window, previous, signal_id, tct.GT, 0)
    told += tct.reset_signal(window, signal_id)
    told += tct.barrier_block(window, 0)  # before it is sent again
    tl.store(status, told)


@triton.jit
def describe(window, found):
    """What a window says of itself, then the addresses of its ranks, and of two that are not."""
    tl.store(found, tct.rank(window))
    tl.store(found + 1, tct.num_ranks(window))
    tl.store(found + 2, tct.base(window))
    tl.store(found + 3, tct.size(window))
    ranks = tct.num_ranks(window)
    for peer in range(ranks):
        tl.store(found + 4 + peer, tct.get_nvlink_address(window, peer))
    tl.store(found + 4 + ranks, tct.get_nvlink_address(window, ranks))
    tl.store(found + 5 + ranks, tct.get_nvlink_address(window, -1))


@triton.jit
def compare(window, there, op: tl.constexpr, value, status):
    """Waits for what is there already, of a word of this rank."""
    told = tct.signal_block(window, tct.rank(window), 0, tct.SET, there)
    tct.fence()
    told += tct.wait_signal_block(window, 0, op, value)
    tl.store(status, told)
