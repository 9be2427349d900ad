"""Windows of GPUs: memory that ranks map, written by copies and signals of streams.

What every backend that has them promises; each registers these as cases of its own.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch

import torchcomms
from harness import Rank, Ranks
from harness.failing import error_of, until
from torchcomms import ReduceOp, SignalCmpOp, TorchComm, TorchCommWinAccessType, TorchCommWindow
from torchcomms.cli.records import job as recorded
from torchcomms.cli.records.calls import messages, window_and_number

COUNT = 10_000
UNIFIED = TorchCommWinAccessType.WIN_ACCESS_TYPE_UNIFIED


def _value(rank: Rank, backend: str, origin: int, target: int, lap: int = 0) -> torch.Tensor:
    values = torch.arange(COUNT, dtype=torch.float32) + 1000 * origin + 100 * target + lap
    return values.to(rank.device(backend))


def _equal(rank: Rank, backend: str, found: torch.Tensor, expected: torch.Tensor) -> None:
    rank.synchronize(backend)
    assert torch.equal(found.cpu(), expected.cpu()), (found, expected)


def _stripe(own: torch.Tensor, origin: int) -> torch.Tensor:
    return own[COUNT * origin : COUNT * (origin + 1)]


def _exchange(
    rank: Rank, backend: str, comm: TorchComm, window: TorchCommWindow, own: torch.Tensor
) -> None:
    """Every rank writes its stripe at every rank, and reads it back."""
    for lap, async_op in enumerate((False, True)):
        works = []
        for target in range(rank.size):
            source = _value(rank, backend, rank.rank, target, lap)
            works.append(window.put(source, target, COUNT * rank.rank, async_op))
            works.append(window.signal(target, async_op))
            del source  # the work holds it
        for origin in range(rank.size):
            window.wait_signal(origin, async_op).wait()
        if not rank.gpu().is_real:
            rank.synchronize(backend)  # torch does not know of the stand-in's streams
        copy = own.clone()  # on the stream that has waited
        for work in works:
            work.wait()
        for origin in range(rank.size):
            _equal(
                rank, backend, _stripe(copy, origin), _value(rank, backend, origin, rank.rank, lap)
            )
        comm.barrier(async_op=False)
        for target in range(rank.size):
            back = torch.full((COUNT,), -1.0, device=own.device)
            window.get(back, target, COUNT * rank.rank, async_op).wait()
            _equal(rank, backend, back, _value(rank, backend, rank.rank, target, lap))
        comm.barrier(async_op=False)
        rank.synchronize(backend)


def _own(comm: TorchComm) -> list[dict[str, Any]]:
    (seen,) = (one for one in recorded.live(os.getpid()) if one.name == comm.get_name())
    return messages(seen.ranks[comm.get_rank()])


def _records(rank: Rank, backend: str) -> None:
    """The second of two windows: what one rank does there, and then the other."""
    comm = rank.new_comm(backend, "recorded")
    windows = [comm.window_allocate(1 << 10, signal_size=64) for _ in range(2)]
    window = windows[1]
    tensor = torch.ones(100, device=rank.device(backend))
    if rank.rank == 0:
        window.put(tensor, 1, 0, async_op=False)
        window.signal(1, async_op=False)
        window.signal(3, 7, 1, async_op=False)
    else:
        window.wait_signal(0, async_op=False)
        window.wait_signal(3, 7, SignalCmpOp.EQ, async_op=False)
        window.get(tensor, 0, 0, async_op=True).wait()
        window.flush(0, async_op=False)
    rank.synchronize(backend)
    until(lambda: all(o["ended"] for o in _own(comm)), "the records to tell the end")
    expected: dict[int, list[tuple[str, int, tuple[int, int]]]] = {
        0: [
            ("put(400 bytes, to rank 1)", 400, (1, 0)),
            ("signal(to rank 1)", 0, (1, 1)),
            ("signal(3, to rank 1)", 0, (1, 0)),
        ],
        1: [
            ("wait_signal(from rank 0)", 0, (1, 1)),
            ("wait_signal(signal 3)", 0, (1, 0)),
            ("get(400 bytes, from rank 0)", 400, (1, 0)),
            ("flush(rank 0)", 0, (1, 0)),
        ],
    }
    found = [(o["call"], o["bytes"], window_and_number(o)) for o in _own(comm)]
    assert found == expected[rank.rank], found
    for each in windows:
        each.tensor_deregister()
    comm.finalize()


def operations_of_windows_are_recorded(make: Callable[[int], Ranks], backend: str) -> None:
    make(2).run(_records, backend)


def _allocates(rank: Rank, backend: str) -> None:
    comm = rank.comm(backend)
    window = comm.window_allocate(4 * COUNT * rank.size, signal_size=64)
    assert window.get_size() == 4 * COUNT * rank.size
    assert window.get_device() == rank.device(backend)
    own = window.get_tensor(rank.rank, [COUNT * rank.size], torch.float32)
    assert own is not None
    assert not own.cpu().any()
    comm.barrier(async_op=False)
    rank.synchronize(backend)
    _exchange(rank, backend, comm, window, own)
    # The memory of the next rank, as a tensor here.
    following = (rank.rank + 1) % rank.size
    assert window.get_attr(following).access_type == UNIFIED
    view = window.get_tensor(following, [COUNT], torch.float32, 0)
    assert view is not None
    _equal(rank, backend, view, _value(rank, backend, 0, following, 1))
    comm.barrier(async_op=False)
    rank.synchronize(backend)
    view.fill_(rank.rank + 0.5)
    rank.synchronize(backend)
    comm.barrier(async_op=False)
    _equal(rank, backend, own[:COUNT], torch.full((COUNT,), (rank.rank - 1) % rank.size + 0.5))
    del view, own
    window.tensor_deregister()
    again = comm.window_allocate(64)
    again.tensor_deregister()


def windows_are_written_by_others(make: Callable[[int], Ranks], backend: str) -> None:
    make(1).run(_allocates, backend)
    make(2).run(_allocates, backend)


def _registers(rank: Rank, backend: str) -> None:
    """Ordinary memory of torch, at some place in its block."""
    if not rank.gpu().is_real:
        return  # what torch has is not the stand-in's
    comm = rank.comm(backend)
    whole = torch.zeros(5000 + COUNT * rank.size, device=rank.device(backend))
    own = whole[5000:]
    for _ in range(2):
        window = comm.new_window(own)
        _exchange(rank, backend, comm, window, own)
        following = (rank.rank + 1) % rank.size
        _equal(
            rank,
            backend,
            _stripe(window.map_remote_tensor(following), 0),
            _value(rank, backend, 0, following, 1),
        )
        comm.barrier(async_op=False)
        rank.synchronize(backend)
        window.tensor_deregister()
    assert whole[:5000].cpu().eq(0).all()


def windows_expose_ordinary_tensors(make: Callable[[int], Ranks], backend: str) -> None:
    make(2).run(_registers, backend)


@contextmanager
def memory_of_nccl(rank: Rank, count: int) -> Iterator[torch.Tensor]:
    """Floats in memory of ncclMemAlloc: of a pool of torch's, where torch knows the GPU."""
    if rank.gpu().is_real:
        pool = torch.cuda.MemPool(torchcomms.get_mem_allocator("nccl"))
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.zeros(count, device=rank.gpu().torch_device)
        yield tensor
        del tensor, pool
        torch.cuda.empty_cache()
        return
    library = ctypes.CDLL(os.environ["TORCHCOMMS_NCCL_LIBRARY"])
    address = ctypes.c_void_p()
    assert library.ncclMemAlloc(ctypes.byref(address), ctypes.c_size_t(4 * count)) == 0
    assert address.value
    memory = (ctypes.c_char * (4 * count)).from_address(address.value)
    yield torch.frombuffer(memory, dtype=torch.float32)
    assert library.ncclMemFree(address) == 0


def _exposes(rank: Rank, backend: str, comm: TorchComm, own: torch.Tensor) -> None:
    """Two windows at a time."""
    opened = [comm.new_window(own) for _ in range(2)]
    for window in opened:
        _exchange(rank, backend, comm, window, own)
    for window in opened:
        window.tensor_deregister()


def _library_memory(rank: Rank, backend: str) -> None:
    comm = rank.comm(backend)
    for _ in range(2):
        with memory_of_nccl(rank, 5000 + COUNT * rank.size) as whole:
            _exposes(rank, backend, comm, whole[5000:])
            assert whole[:5000].cpu().eq(0).all()
            del whole
        rank.synchronize(backend)


def windows_expose_memory_of_nccl(make: Callable[[int], Ranks], backend: str) -> None:
    make(2).run(_library_memory, backend)


PIECE = 20 << 20  # bytes, of torch's expandable segments


def _expandable(rank: Rank) -> torch.Tensor:
    """Bytes of two allocations that are mapped one behind the other."""
    if rank.gpu().is_real:
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        return torch.zeros(2 * PIECE, dtype=torch.uint8, device=rank.gpu().torch_device)
    driver = ctypes.CDLL(os.environ["CTRAN_CUDA_LIBRARY"])
    size, none = ctypes.c_size_t, ctypes.c_uint64(0)
    place = ctypes.c_uint64()
    assert (
        driver.cuMemAddressReserve(ctypes.byref(place), size(2 * PIECE), size(0), none, none) == 0
    )
    for piece in range(2):
        handle, at = ctypes.c_uint64(), ctypes.c_uint64(place.value + piece * PIECE)
        assert driver.cuMemCreate(ctypes.byref(handle), size(PIECE), None, none) == 0
        assert driver.cuMemMap(at, size(PIECE), size(0), handle, none) == 0
        assert driver.cuMemRelease(handle) == 0
    return torch.frombuffer(
        (ctypes.c_char * (2 * PIECE)).from_address(place.value), dtype=torch.uint8
    )


def _expands(rank: Rank, backend: str) -> None:
    comm = rank.comm(backend)
    whole = _expandable(rank)
    count = COUNT * rank.size
    _exposes(rank, backend, comm, whole[: 4 * count].view(torch.float32))
    for refused in (whole, whole if rank.rank == 0 else whole[: 4 * count]):
        told = error_of(lambda refused=refused: comm.new_window(refused))
        assert "expandable segments" in str(told), told
        assert told.ranks == [0], told.ranks


def windows_expose_expandable_segments(make: Callable[[int], Ranks], backend: str) -> None:
    make(2).run(_expands, backend)


def _numbered(rank: Rank, backend: str) -> None:
    """Signals with values go round; a graph passes them too."""
    comm = rank.comm(backend)
    window = comm.window_allocate(4 * COUNT, signal_size=64)
    own = window.get_tensor(rank.rank, [COUNT], torch.float32)
    assert own is not None
    following = (rank.rank + 1) % rank.size
    for lap in range(1, 5):
        if rank.rank == 0:
            window.signal(0, lap, following, async_op=False)
        window.wait_signal(0, lap, SignalCmpOp.GE, async_op=True).wait()
        if rank.rank != 0:
            window.signal(0, lap, following, async_op=False)
    window.wait_signal(0, 4, SignalCmpOp.EQ, async_op=False)
    window.wait_signal(0, 3, SignalCmpOp.GT, async_op=False)
    rank.synchronize(backend)

    source, result = _value(rank, backend, rank.rank, following), torch.zeros_like(own)

    def step() -> None:
        window.put(source, following, 0, async_op=True)
        window.signal(1, 1, following, async_op=True)
        window.wait_signal(1, 1, SignalCmpOp.EQ, async_op=True)
        result.copy_(own)
        window.signal(1, 0, rank.rank, async_op=True)  # as before, for the next replay

    if rank.gpu().is_real:
        replay = rank.gpu().capture(step)
        for lap in range(20):
            source.copy_(_value(rank, backend, rank.rank, following, lap))
            replay()
            _equal(
                rank,
                backend,
                result,
                _value(rank, backend, (rank.rank - 1) % rank.size, rank.rank, lap),
            )
            comm.barrier(async_op=False)  # the word is 0 again before it is written again
            rank.synchronize(backend)
        del replay
    window.tensor_deregister()


def signals_have_values_and_are_captured(make: Callable[[int], Ranks], backend: str) -> None:
    make(2).run(_numbered, backend)


def _counted(rank: Rank, backend: str) -> None:
    """Puts go round, announced by counted signals, in replays and eager calls in turn."""
    comm = rank.comm(backend)
    window = comm.window_allocate(4 * COUNT)
    following, preceding = (rank.rank + 1) % rank.size, (rank.rank - 1) % rank.size
    source = _value(rank, backend, rank.rank, following)
    result = torch.zeros_like(source)

    def step() -> torchcomms.TorchWork:
        window.put(source, following, 0, async_op=True)
        window.signal(following, async_op=True)
        window.wait_signal(preceding, async_op=True)
        window.get(result, rank.rank, 0, async_op=True)
        window.signal(preceding, async_op=True)  # what it has put has been read
        return window.wait_signal(following, async_op=True)

    replay = rank.gpu().capture(step)
    laps = [1, 2, 3, 2000 if rank.gpu().is_real else 100, 5]
    for lap, times in enumerate(laps):
        source.copy_(_value(rank, backend, rank.rank, following, lap))
        result.zero_()
        for _ in range(times):
            replay()
        expected = _value(rank, backend, preceding, rank.rank, lap)
        _equal(rank, backend, result, expected)
        source.add_(1)
        for _ in range(lap):
            step().wait()
        _equal(rank, backend, result, expected + 1 if lap else expected)
    del replay
    window.tensor_deregister()


def counted_signals_are_captured(make: Callable[[int], Ranks], backend: str) -> None:
    make(2).run(_counted, backend)


LARGE = 1 << 63
# What is awaited, and what ends that, after the one before.
COMPARISONS = [
    (SignalCmpOp.NE, 0, 5),
    (SignalCmpOp.LT, 5, 4),
    (SignalCmpOp.LE, 3, 3),
    (SignalCmpOp.GT, 3, LARGE),
    (SignalCmpOp.GE, LARGE + 1, LARGE + 1),
    (SignalCmpOp.EQ, 7, 7),
]


def _compares(rank: Rank, backend: str) -> None:
    comm = rank.comm(backend)
    window = comm.window_allocate(64, signal_size=64)
    for op, awaited, sent in COMPARISONS:
        if rank.rank == 0:
            rank.listen()
            window.signal(2, sent, 1, async_op=False)
        else:
            work = window.wait_signal(2, awaited, op, async_op=True)
            assert not work.is_completed(), op
            rank.say("waiting")
            work.wait_blocking()
    rank.synchronize(backend)
    window.tensor_deregister()


def signals_are_compared(make: Callable[[int], Ranks], backend: str) -> None:
    job = make(2).start(_compares, backend)
    for _ in COMPARISONS:
        assert job.hear(1) == "waiting"
        job.say(0)
    job.results()


def _wrong(rank: Rank, backend: str) -> None:
    comm = rank.comm(backend)
    window = comm.window_allocate(4 * COUNT, signal_size=64)
    source = _value(rank, backend, 0, 0)
    for call, told in (
        (lambda: window.put(source, rank.size, 0, async_op=False), "rank must be in range"),
        (lambda: window.put(source, 0, 1, async_op=False), "exceeds the window size"),
        (lambda: window.signal(8, 1, 0, async_op=False), "signal_disp must be in range"),
    ):
        said = ""
        try:
            call()
        except torchcomms.CommError as error:
            said = str(error)
        assert told in said, said
    window.tensor_deregister()


def wrong_calls_of_windows_are_refused(make: Callable[[int], Ranks], backend: str) -> None:
    make(2).run(_wrong, backend)


def _waits_in_vain(rank: Rank, backend: str, end: str) -> object:
    """The stream, and others, are free again afterwards."""
    limit = timedelta(seconds=30 if end == "abort" else 2)
    comm = rank.new_comm(backend, f"vain-{end}", timeout=timedelta(seconds=30))
    comm.all_reduce(_value(rank, backend, 0, 0), ReduceOp.SUM, async_op=False)
    window = comm.window_allocate(64, signal_size=64)
    rank.synchronize(backend)
    if rank.rank == 1:
        rank.listen()
        if end == "abort":
            comm.abort()
        return None
    if end == "replay":

        def step() -> None:
            window.wait_signal(3, 7, SignalCmpOp.EQ, async_op=True, timeout=limit)

        replay = rank.gpu().capture(step)
        value = _value(rank, backend, 0, 0)  # now: copies wait for the stream that waits in vain
        replay()
        works = [comm.all_reduce(value, ReduceOp.SUM, async_op=False)]
    else:
        works = [window.wait_signal(1, async_op=True, timeout=limit)]
        works.append(window.wait_signal(3, 7, SignalCmpOp.EQ, async_op=True, timeout=limit))
    rank.say("waiting")
    kind = torchcomms.AbortedError if end == "abort" else torchcomms.CommTimeoutError
    try:
        works[0].wait_blocking()
    except kind as error:
        ranks = error.ranks
    rank.synchronize(backend)
    tensor = _value(rank, backend, 1, 1)
    tensor.mul_(2)
    _equal(rank, backend, tensor, 2 * _value(rank, backend, 1, 1))
    rank.say("gave up")
    return ranks


def _expect_timeout(make: Callable[[int], Ranks], backend: str, end: str) -> None:
    job = make(2).start(_waits_in_vain, backend, end)
    assert [job.hear(0), job.hear(0)] == ["waiting", "gave up"]
    job.say(1)
    assert job.results() == [[1], None]


def a_signal_that_does_not_come_times_out(make: Callable[[int], Ranks], backend: str) -> None:
    _expect_timeout(make, backend, "timeout")


def a_signal_that_a_replay_waits_for_times_out(make: Callable[[int], Ranks], backend: str) -> None:
    _expect_timeout(make, backend, "replay")


def an_abort_ends_a_wait_for_a_signal(make: Callable[[int], Ranks], backend: str) -> None:
    job = make(2).start(_waits_in_vain, backend, "abort")
    assert job.hear(0) == "waiting"
    job.say(1)
    assert job.results() == [[1], None]


def _goes_in_vain(rank: Rank, backend: str) -> None:
    """As at the end of the interpreter: nobody watches any more."""
    comm = rank.new_comm(backend, "gone")
    window = comm.window_allocate(64, signal_size=64)
    rank.synchronize(backend)
    window.wait_signal(1 - rank.rank, async_op=True)
    torchcomms._comms._retire()
    del window, comm


def a_window_goes_while_it_waits_in_vain(make: Callable[[int], Ranks], backend: str) -> None:
    make(2).run(_goes_in_vain, backend)
