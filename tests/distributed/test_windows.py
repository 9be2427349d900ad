"""Windows: memory that every rank exposes to the others."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import pytest
import torch
from harness import Rank, Ranks

import torchcomms
from torchcomms import SignalCmpOp, TorchComm, TorchCommWinAccessType, TorchCommWindow

MakeRanks = Callable[[int], Ranks]
BACKEND = "ctran"
UNIFIED = TorchCommWinAccessType.WIN_ACCESS_TYPE_UNIFIED
SEPARATE = TorchCommWinAccessType.WIN_ACCESS_TYPE_SEPARATE


WORLDS = pytest.mark.parametrize(("size", "hosts"), [(1, 1), (2, 1), (4, 1), (2, 2), (4, 2)])


def _value(origin: int, target: int, count: int) -> torch.Tensor:
    return torch.arange(count, dtype=torch.float32) + 1000 * origin + 100 * target


def _exchange(comm: TorchComm, window: TorchCommWindow, own: torch.Tensor) -> None:
    """Every rank writes its stripe at every rank, async and sync, and reads it back."""
    rank, size = comm.get_rank(), comm.get_size()
    stripe = own.numel() // size
    for async_op in (False, True):
        works = []
        for target in range(size):
            source = _value(rank + (7 if async_op else 0), target, stripe)
            works.append(window.put(source, target, stripe * rank, async_op))
            works.append(window.signal(target, async_op))
            del source  # the work holds it
        for work in works:
            work.wait()
        for origin in range(size):
            window.wait_signal(origin, async_op).wait()
            expected = _value(origin + (7 if async_op else 0), rank, stripe)
            torch.testing.assert_close(own[stripe * origin : stripe * (origin + 1)], expected)
        comm.barrier(False)
        for target in range(size):
            back = torch.full((stripe,), -1.0)
            window.get(back, target, stripe * rank, async_op).wait()
            torch.testing.assert_close(back, _value(rank + (7 if async_op else 0), target, stripe))
        comm.barrier(False)


def registers_ordinary_tensors(rank: Rank, count: int, hosts: int) -> None:
    comm = rank.comm(BACKEND, hosts)
    window = comm.new_window()
    tensor = torch.zeros(count * rank.size)
    alias = tensor[:]
    comm.tensor_register(tensor)
    window.tensor_register(tensor)
    comm.tensor_deregister(tensor)  # wherever it is now
    assert window.get_size() == tensor.nbytes
    assert window.dtype == torch.float32
    assert window.shape == tensor.shape
    assert window.device == window.get_device() == torch.device("cpu")
    assert window.get_tensor() is not None
    with pytest.raises(ValueError, match="name the rank"):
        window.get_tensor(sizes=[1])
    mine = window.get_tensor(rank.rank)
    assert mine is not None
    rest = window.get_tensor(rank.rank, offset=1)
    assert rest is not None
    torch.testing.assert_close(rest, mine.flatten()[1:])
    bytes_ = window.get_tensor(rank.rank, dtype=torch.uint8)
    assert bytes_ is not None
    torch.testing.assert_close(bytes_, mine.flatten().view(torch.uint8))
    with pytest.raises(ValueError, match="there is no element"):
        window.get_tensor(rank.rank, offset=mine.numel() + 1)
    comm.barrier(False)  # until here nobody puts
    _exchange(comm, window, tensor)
    assert alias.data_ptr() == tensor.data_ptr()
    assert torch.equal(alias, tensor)
    other = (rank.rank + 1) % rank.size
    comm.barrier(False)
    tensor[0] = rank.rank
    comm.barrier(False)
    if rank.host(hosts, other) != rank.host(hosts):
        assert window.get_attr(other).access_type == SEPARATE
        with pytest.raises(torchcomms.CommError, match="SEPARATE"):
            window.map_remote_tensor(other)
    else:
        assert window.get_attr(other).access_type == UNIFIED
        there = window.map_remote_tensor(other)
        assert there.shape == tensor.shape
        assert there[0] == other
    comm.barrier(False)
    assert window.map_remote_tensor(rank.rank).data_ptr() == tensor.data_ptr()
    window.tensor_deregister()
    # Again, through the other spelling, and not held by the window.
    window.tensor_register(tensor, owning=False)
    assert window.get_tensor() is None
    window.tensor_deregister()
    again = comm.new_window(tensor)
    _exchange(comm, again, tensor)
    again.tensor_deregister()


def registers_memory_of_others(rank: Rank, count: int) -> None:
    """Memory that somebody else points to stays where it is."""
    comm = rank.comm(BACKEND)
    array = np.zeros(count * rank.size, dtype=np.float32)
    seen = torch.zeros(count * rank.size)
    shown = seen.numpy()
    for tensor, outside in ((torch.from_numpy(array), array), (seen, shown)):
        window = comm.new_window(tensor)
        _exchange(comm, window, tensor)
        np.testing.assert_array_equal(outside, tensor.numpy())
        other = (rank.rank + 1) % rank.size
        assert window.get_attr(other).access_type == SEPARATE
        with pytest.raises(torchcomms.CommError, match="SEPARATE"):
            window.map_remote_tensor(other)
        window.tensor_deregister()


@pytest.mark.parametrize("count", [1, 3000, 400_000])
def test_memory_of_arrays(ranks: MakeRanks, count: int) -> None:
    ranks(2).run(registers_memory_of_others, count)


@WORLDS
@pytest.mark.parametrize("count", [1, 3000, 400_000])
def test_ordinary_tensors(ranks: MakeRanks, size: int, hosts: int, count: int) -> None:
    ranks(size).run(registers_ordinary_tensors, count, hosts)


def allocates(rank: Rank, count: int, hosts: int) -> None:
    comm = rank.comm(BACKEND, hosts)
    window = comm.window_allocate(window_size=4 * count * rank.size, signal_size=64)
    assert window.get_size() == 4 * count * rank.size
    own = window.get_tensor(rank.rank, [count * rank.size], torch.float32)
    assert own is not None
    assert not own.any()
    with pytest.raises(torchcomms.CommError, match="no scales for a quantized type"):
        window.get_tensor(rank.rank, [1], torch.quint8)
    comm.barrier(False)
    _exchange(comm, window, own)
    comm.barrier(False)
    # Each rank's memory as a tensor, here, if it is on this host.
    views = {}
    for other in range(rank.size):
        if rank.host(hosts, other) != rank.host(hosts):
            assert window.get_attr(other).access_type == SEPARATE
            with pytest.raises(torchcomms.CommError, match="SEPARATE"):
                window.get_tensor(other, [count], torch.float32)
            continue
        assert window.get_attr(other).access_type == UNIFIED
        view = window.get_tensor(rank=other, sizes=[count], dtype=torch.float32, offset=0)
        assert view is not None
        views[other] = view
        torch.testing.assert_close(view, _value(7, other, count))
    comm.barrier(False)
    following = (rank.rank + 1) % rank.size
    if following in views:
        views[following].fill_(rank.rank + 0.5)
    else:
        window.put(torch.full((count,), rank.rank + 0.5), following, 0, False)
        window.flush(following, False)
    comm.barrier(False)
    assert own[0] == (rank.rank - 1) % rank.size + 0.5
    comm.barrier(False)
    window.tensor_deregister()
    views[rank.rank][0] = 3.0  # the view outlives the window


@WORLDS
@pytest.mark.parametrize("count", [1, 3000, 400_000])
def test_allocated_memory(ranks: MakeRanks, size: int, hosts: int, count: int) -> None:
    ranks(size).run(allocates, count, hosts)


def passes_a_token(rank: Rank, hosts: int) -> None:
    """The signals of the older spelling: numbered, set and compared with."""
    comm = rank.comm(BACKEND, hosts)
    window = comm.window_allocate(64, cpu_buf=True, signal_size=64)
    following = (rank.rank + 1) % rank.size
    for lap in range(1, 5):
        if rank.rank == 0:
            window.signal(signal_disp=0, signal_val=lap, dst_rank=following, async_op=False)
        window.wait_signal(
            signal_disp=0, signal_val=lap, cmp_op=SignalCmpOp.GE, async_op=False
        ).wait()
        if rank.rank != 0:
            window.signal(0, lap, following, False)
    # By now every signal is 4.
    for op, value in [("EQ", 4), ("GE", 4), ("LE", 4), ("NE", 3), ("LT", 5), ("GT", 3)]:
        window.wait_signal(0, value, getattr(SignalCmpOp, op), False)
    window.tensor_deregister()


HOSTS = pytest.mark.parametrize("hosts", [1, 2])


@HOSTS
def test_numbered_signals(ranks: MakeRanks, hosts: int) -> None:
    ranks(3).run(passes_a_token, hosts)


def flushes(rank: Rank, allocated: bool, hosts: int) -> None:
    comm = rank.comm(BACKEND, hosts)
    if allocated:
        window = comm.window_allocate(4000 * rank.size)
    else:
        window = comm.new_window(torch.zeros(1000 * rank.size))
    for target in range(rank.size):
        window.put(_value(rank.rank, target, 1000), target, 1000 * rank.rank, True)
        window.flush(target, False)
    comm.barrier(False)
    own = torch.empty(1000 * rank.size)
    window.get(own, rank.rank, 0, False)
    expected = torch.cat([_value(origin, rank.rank, 1000) for origin in range(rank.size)])
    torch.testing.assert_close(own, expected)
    window.tensor_deregister()


@HOSTS
@pytest.mark.parametrize("allocated", [False, True], ids=["registered", "allocated"])
def test_flush(ranks: MakeRanks, allocated: bool, hosts: int) -> None:
    ranks(3).run(flushes, allocated, hosts)


def refuses(rank: Rank, hosts: int) -> None:
    comm = rank.comm(BACKEND, hosts)
    window = comm.new_window()
    tensor = torch.zeros(10)
    other = (rank.rank + 1) % rank.size

    def rejected(message: str, call: Callable[[], object]) -> None:
        with pytest.raises(torchcomms.CommError, match=message):
            call()

    rejected("no tensor is registered", lambda: window.put(tensor, other, 0, False))
    rejected("no tensor is registered", window.tensor_deregister)
    rejected("contiguous tensor required", lambda: window.tensor_register(torch.zeros(4, 4).t()))
    window.tensor_register(tensor)
    rejected("Double registration error", lambda: window.tensor_register(tensor))
    outside = re.escape("exceeds the window size (40 bytes)")
    rejected(outside, lambda: window.put(torch.zeros(5), other, 6, False))
    rejected(outside, lambda: window.put(tensor, other, -1, False))
    rejected(outside, lambda: window.get(torch.zeros(11), other, 0, False))
    longer = torch.zeros(6, dtype=torch.float64)
    rejected(outside, lambda: window.put(longer.view(torch.uint8), other, 0, False))
    another = f"the tensor is Double, the memory of rank {other} Float\n.*view"
    rejected("put]: " + another, lambda: window.put(longer[:2], other, 0, False))
    rejected("get]: " + another, lambda: window.get(longer[:2], other, 0, False))
    freed = torch.zeros(4)
    freed.untyped_storage().resize_(0)
    rejected("not in its storage", lambda: window.put(freed, other, 0, False))
    rejected("not in its storage", lambda: window.get(freed, other, 0, False))
    rejected("contiguous", lambda: window.put(torch.zeros(4, 2)[:, 0], other, 0, False))
    rejected("rank must be in range", lambda: window.put(tensor, rank.size, 0, False))
    rejected("rank must be in range", lambda: window.signal(-1, False))
    rejected(
        rf"rank must be in range \[0, {rank.size}\), but got {2**40}",
        lambda: window.get_attr(2**40),
    )
    rejected(
        r"signal_val must be in range \[0, 2\*\*64\), but got -1",
        lambda: window.signal(0, -1, other, False),
    )
    rejected("signal_disp must be in range", lambda: window.signal(8, 1, other, False))
    rejected(
        "signal_disp must be in range", lambda: window.wait_signal(-1, 1, SignalCmpOp.EQ, False)
    )
    with pytest.raises(TypeError):
        window.put([1.0], other, 0, False)  # type: ignore[call-overload]
    comm.barrier(False)
    assert not tensor.any(), "something was written"
    window.tensor_deregister()
    rejected("window_size must not be negative", lambda: comm.window_allocate(-1))
    rejected("signal_size must not be negative", lambda: comm.window_allocate(8, signal_size=-8))
    rejected("16777216 are the most", lambda: comm.window_allocate(8, signal_size=2**30))
    rejected(
        "signal_size must be a multiple of 8 bytes, one signal, but got 7",
        lambda: comm.window_allocate(8, signal_size=7),
    )


@HOSTS
def test_wrong_arguments_write_nothing(ranks: MakeRanks, hosts: int) -> None:
    ranks(2).run(refuses, hosts)


def waits_in_vain(rank: Rank, hosts: int) -> str:
    comm = rank.comm(BACKEND, hosts)
    window = comm.new_window(torch.zeros(4))
    comm.barrier(False)  # all have it now
    limit = timedelta(milliseconds=100 if rank.rank == 0 else 60_000)
    with pytest.raises(torchcomms.CommTimeoutError) as error:
        window.wait_signal((rank.rank + 1) % rank.size, False, timeout=limit)
    return str(error.value)


@HOSTS
def test_a_wait_is_bounded_and_says_for_whom(fresh_ranks: MakeRanks, hosts: int) -> None:
    said = fresh_ranks(2).run(waits_in_vain, hosts)
    assert all("a signal from rank 1 has not come" in text for text in said)


def unsupported(rank: Rank) -> None:
    comm = rank.comm("gloo")
    with pytest.raises(torchcomms.CommError, match="new_window not supported by backend gloo"):
        comm.new_window()


def test_a_backend_without_windows_says_so(ranks: MakeRanks) -> None:
    ranks(1).run(unsupported)
