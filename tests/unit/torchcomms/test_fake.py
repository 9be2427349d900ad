"""Backend `fake`: everything succeeds, and nothing happens."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch

from torchcomms import (
    AbortedError,
    CommError,
    ReduceOp,
    SignalCmpOp,
    TorchComm,
    WorkStatus,
    new_comm,
)
from torchcomms.hooks import FlightRecorderHook

Make = Callable[..., TorchComm]
Every = Callable[[TorchComm, torch.Tensor], list[Callable[[], object]]]


@pytest.mark.parametrize("device", ["cpu", "meta", "cuda"])
def test_what_it_says_of_itself(fake: Make, device: str) -> None:
    comm = fake(rank=2, size=5, device=torch.device(device), name="pretence")
    assert comm.get_rank() == 2
    assert comm.get_size() == 5
    assert comm.get_backend() == "fake"
    assert comm.get_name() == "pretence"
    assert comm.get_device() == torch.device(device)
    assert comm.get_ranks() == [0, 1, 2, 3, 4]
    assert repr(comm) == "<TorchComm 'pretence' fake rank 2 of 5>"
    impl = comm.get_backend_impl()
    assert (impl.get_rank(), impl.get_size(), impl.get_backend_name()) == (2, 5, "fake")
    with pytest.warns(DeprecationWarning, match="use get_backend_impl"):
        comm.unsafe_get_backend()


@pytest.mark.parametrize("async_op", [False, True])
def test_operations_end_at_once_and_touch_nothing(fake: Make, async_op: bool) -> None:
    comm = fake()
    tensor = torch.arange(8.0)
    work = comm.all_reduce(tensor, ReduceOp.SUM, async_op)
    assert work.is_completed()
    assert work.status == WorkStatus.COMPLETED
    assert work.wait()
    assert work.wait(timedelta(seconds=1))
    work.wait_blocking()
    assert work.exception() is None
    assert torch.equal(tensor, torch.arange(8.0))


def test_aborted(fake: Make) -> None:
    comm = fake()
    assert comm.is_abort_supported()
    assert not comm.is_aborted()
    comm.abort()
    assert comm.is_aborted()
    with pytest.raises(AbortedError, match="has been aborted"):
        comm.barrier(False)


def test_settings(fake: Make) -> None:
    comm = fake()
    comm.set_timeout(timedelta(seconds=3))
    comm.set_hints({"a": "b"})
    assert comm.get_options().timeout == timedelta(seconds=3)
    assert comm.get_options().hints == {"a": "b"}
    with pytest.raises(CommError, match="timeout must be positive"):
        comm.set_timeout(timedelta(0))


def test_split_takes_ranks_in_their_order(fake: Make) -> None:
    parent = fake(rank=1, size=4, name="parent", timeout=timedelta(seconds=7), hints={"a": "b"})
    child = parent.split([3, 1], "child")
    assert child is not None
    assert child.get_name() == "child"
    assert (child.get_rank(), child.get_size()) == (1, 2)
    assert child.get_ranks() == [3, 1]
    assert child.get_options().timeout == timedelta(seconds=7)
    assert child.get_options().hints == {"a": "b"}
    grandchild = child.split([1], timeout=timedelta(seconds=1), hints={})
    assert grandchild is not None
    assert grandchild.get_ranks() == [1]
    assert grandchild.get_options().timeout == timedelta(seconds=1)
    assert grandchild.get_options().hints == {}


def test_split_in_groups(fake: Make) -> None:
    child = fake(rank=1).split(rank_groups=[[0, 2], [3, 1]], name="part")
    assert child is not None
    assert child.get_ranks() == [3, 1]
    child = fake(rank=1).split(rank_groups=[[1, 2]])
    assert child is not None
    assert child.get_ranks() == [1, 2]


def test_split_of_ranks_that_join_nothing(fake: Make) -> None:
    assert fake(rank=1).split([], "nothing") is None
    assert fake(rank=1).split(rank_groups=[[0, 2], [3]]) is None


def test_children_without_a_name_differ(fake: Make) -> None:
    parent = fake(rank=0, name="parent")
    names = []
    for ranks in ([0], [], [0, 1]):
        child = parent.split(ranks)
        names.append(child.get_name() if child else None)
    assert names == ["parent/0", None, "parent/2"]


def test_split_needs_ranks(fake: Make) -> None:
    for arguments in ({}, {"ranks": [1], "rank_groups": [[1]]}):
        with pytest.raises(TypeError, match="either 'ranks' or 'rank_groups'"):
            fake().split(**arguments)


def test_nothing_goes_after_finalize(fake: Make, every_operation: Every) -> None:
    comm = fake(name="over")
    comm.finalize()
    message = "TorchComm 'over' already finalized"
    for call in [
        *every_operation(comm, torch.zeros(8)),
        comm.finalize,
        lambda: comm.barrier(False),
        lambda: comm.split([0]),
        lambda: comm.set_timeout(timedelta(seconds=1)),
        lambda: comm.set_hints({}),
        comm.get_init_handle,
        lambda: comm.register_pre_hook(print),
        lambda: comm.register_post_hook(print),
        lambda: comm.register_abort_hook(print),
        lambda: FlightRecorderHook(isolated=True).register_with_comm(comm),
        lambda: comm.tensor_register(torch.zeros(1)),
        lambda: comm.all_gather_p_init(torch.zeros(8)),
        lambda: comm.all_to_all_p_init(torch.zeros(8)),
    ]:
        with pytest.raises(CommError, match=message):
            call()
    assert comm.get_rank() == 1


def test_a_fake_world_can_be_reconfigured() -> None:
    comm = new_comm("fake", torch.device("cpu"), enable_reconfigure=True)
    own = comm.get_init_handle()
    comm.abort()
    comm.reconfigure(1, ["somebody", "else", own])
    assert (comm.get_rank(), comm.get_size(), comm.get_ranks()) == (2, 3, [0, 1, 2])
    comm.barrier(async_op=False)
    with pytest.raises(CommError, match="own handle"):
        comm.reconfigure(2, ["somebody"])


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_windows_are_there_and_touch_nothing(fake: Make, device: str) -> None:
    comm = fake(rank=1, size=4, device=torch.device(device))
    tensor = torch.arange(8.0, device=device)
    window = comm.new_window(tensor)
    assert copy.copy(window) is copy.deepcopy(window) is window
    assert (window.get_size(), window.dtype, window.shape) == (32, torch.float32, (8,))
    for work in (
        window.put(torch.ones(4, device=device), 3, 4, async_op=True),
        window.get(torch.ones(4, device=device), 3, 4, async_op=True),
        window.flush(3, True),
        window.signal(3, True),
        window.wait_signal(3, True),
        window.signal(7, 1, 3, True),
        window.wait_signal(7, 1, SignalCmpOp.GE, True),
    ):
        assert work.is_completed()
    with pytest.raises(CommError, match="exceeds the window size"):
        window.put(torch.ones(4, device=device), 3, 5, False)
    window.tensor_deregister()
    if device == "cpu":
        assert torch.equal(tensor, torch.arange(8.0))
        allocated = comm.window_allocate(32)
        theirs = allocated.get_tensor(2, [8], torch.float32, 0)
        del allocated
        assert theirs is not None
        assert theirs.tolist() == [0.0] * 8
    comm.abort()
    with pytest.raises(AbortedError):
        comm.new_window(tensor)
