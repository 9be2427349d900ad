"""Works and errors, with ranks that are threads of this process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import Any, cast

import pytest
import torch

from torchcomms import (
    AbortedError,
    CommError,
    CommTimeoutError,
    MismatchError,
    ReduceOp,
    TorchComm,
    TorchWork,
    WorkStatus,
    new_comm,
)

Make = Callable[..., list[TorchComm]]
OnEach = Callable[[Any, Callable[[Any], Any]], list[Any]]
SOON = timedelta(milliseconds=50)


def test_ranks_reduce_together(threads: Make, on_each: OnEach) -> None:
    def one(comm: TorchComm) -> torch.Tensor:
        tensor = torch.arange(1000.0) * (comm.get_rank() + 1)
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        return tensor

    for tensor in on_each(threads(3), one):
        assert torch.equal(tensor, torch.arange(1000.0) * 6)


def test_an_asynchronous_operation_ends_when_all_have_come(threads: Make) -> None:
    first, second = threads(2)
    tensors = [torch.ones(4), torch.full((4,), 2.0)]
    work = first.all_reduce(tensors[0], ReduceOp.SUM, async_op=True)
    assert not work.is_completed()
    assert work.status in (WorkStatus.NOT_STARTED, WorkStatus.INPROGRESS)
    assert work.exception() is None
    assert work.wait(SOON) is False
    other = second.all_reduce(tensors[1], ReduceOp.SUM, async_op=True)
    assert work.wait() is True
    other.wait_blocking()
    assert work.status == other.status == WorkStatus.COMPLETED
    assert all(torch.equal(tensor, torch.full((4,), 3.0)) for tensor in tensors)


def test_wait_takes_a_timeout_and_nothing_else(threads: Make) -> None:
    first, second = threads(2)
    work: Any = first.send(torch.ones(1), 1, async_op=True)
    second.recv(torch.empty(1), 0, async_op=False)
    assert work.wait() is work.wait(None) is work.wait(timeout=None) is True
    assert work.wait(SOON) is work.wait(timeout=SOON) is True
    with pytest.raises(TypeError, match="timedelta"):
        work.wait(1)
    with pytest.raises(TypeError, match=r"at most 1 argument \(2 given\)"):
        work.wait(SOON, timeout=SOON)
    with pytest.raises(TypeError, match="unexpected keyword argument 'limit'"):
        work.wait(limit=SOON)
    with pytest.raises(TypeError):
        TorchWork.wait(cast(Any, first))


def test_a_work_keeps_its_tensors(threads: Make) -> None:
    first, second = threads(2)
    received = torch.zeros(100_000)
    expected = torch.arange(100_000.0)
    sent = first.send(torch.arange(100_000.0), 1, async_op=True)  # nobody else holds it
    torch.full((100_000,), -1.0)  # would get its memory, had it been freed
    second.recv(received, 0, async_op=False)
    sent.wait()
    assert torch.equal(received, expected)


def test_a_status_can_be_said(threads: Make) -> None:
    first, second = threads(2)
    work = first.recv(torch.zeros(1), 1, async_op=True)
    assert not work.is_completed()
    work._set_status(WorkStatus.ERROR)
    assert work.is_completed()
    assert work.status == WorkStatus.ERROR
    assert work.exception() is None
    second.send(torch.ones(1), 0, async_op=False)
    work.wait()  # of the operation
    assert work.status == WorkStatus.ERROR
    with pytest.raises(CommError, match="cannot have a status of its own"):
        new_comm("fake", torch.device("cpu")).barrier(False)._set_status(WorkStatus.ERROR)


def test_a_symmetric_batch_does_not_deadlock(threads: Make, on_each: OnEach) -> None:
    def one(comm: TorchComm) -> torch.Tensor:
        peer = 1 - comm.get_rank()
        received = torch.zeros(500_000)
        batch = comm.batch_op_create()
        batch.send(torch.full((500_000,), float(comm.get_rank())), peer)
        batch.recv(received, peer)
        batch.issue(async_op=False)
        return received

    received = on_each(threads(2), one)
    assert (received[0] == 1).all()
    assert (received[1] == 0).all()


def test_a_batch_has_ended_when_all_of_it_has(threads: Make) -> None:
    first, second = threads(2)
    tensors = [torch.zeros(1), torch.zeros(1)]
    batch = first.batch_op_create()
    for tensor in tensors:
        batch.recv(tensor, 1)
    work = batch.issue(async_op=True)
    second.send(torch.ones(1), 0, async_op=False)
    assert work.wait(SOON) is False
    assert not work.is_completed()
    second.send(torch.ones(1), 0, async_op=False)
    assert work.wait(timedelta(seconds=60)) is True
    assert work.status == WorkStatus.COMPLETED
    assert [tensor.item() for tensor in tensors] == [1, 1]


def test_a_timeout_names_who_is_missing(threads: Make) -> None:
    first, _second = threads(2)
    with pytest.raises(CommTimeoutError) as raised:
        first.all_reduce(torch.ones(1), ReduceOp.SUM, async_op=False, timeout=SOON)
    assert raised.value.ranks == [1]
    assert "all_reduce" in raised.value.op
    assert raised.value.hint in str(raised.value)
    assert first.is_aborted()
    with pytest.raises(CommError):
        first.barrier(async_op=False)


def test_the_work_of_a_failed_operation_tells(threads: Make) -> None:
    first, _second = threads(2)
    work = first.all_reduce(torch.ones(1), ReduceOp.SUM, async_op=True, timeout=SOON)
    for _ in range(2):  # as often as one asks
        with pytest.raises(CommTimeoutError):
            work.wait()
        with pytest.raises(CommTimeoutError):
            work.wait(timedelta(seconds=60))
    assert work.is_completed()
    assert work.status == WorkStatus.TIMEDOUT
    error = work.exception()
    assert isinstance(error, CommTimeoutError)
    assert error.ranks == [1]


def test_a_batch_tells_what_failed(threads: Make) -> None:
    first, _second = threads(2)
    batch = first.batch_op_create()
    batch.send(torch.ones(1), 1)
    batch.recv(torch.ones(1), 1)
    work = batch.issue(async_op=True)
    first.abort()
    with pytest.raises(AbortedError):
        work.wait()
    assert work.status == WorkStatus.ERROR
    assert isinstance(work.exception(), AbortedError)


def test_ranks_that_disagree_are_told(threads: Make, on_each: OnEach) -> None:
    def one(comm: TorchComm) -> CommError | None:
        count = 3 + comm.get_rank()
        try:
            comm.all_reduce(torch.ones(count), ReduceOp.SUM, async_op=False)
            comm.barrier(async_op=False)
        except CommError as error:
            return error
        return None

    errors = on_each(threads(2), one)
    assert any(isinstance(error, MismatchError) for error in errors)
    assert all(error is not None for error in errors)


def test_abort_ends_a_blocked_call(threads: Make) -> None:
    first, second = threads(2)
    work = second.all_reduce(torch.ones(1), ReduceOp.SUM, async_op=True)

    def blocked() -> None:
        with pytest.raises(AbortedError):
            second.barrier(async_op=False)

    thread = threading.Thread(target=blocked)
    thread.start()
    first.abort()
    thread.join()
    with pytest.raises(AbortedError):
        work.wait()
    assert first.is_aborted()
    assert second.is_aborted()


def test_a_wrong_argument_breaks_nothing(threads: Make, on_each: OnEach) -> None:
    def one(comm: TorchComm) -> None:
        with pytest.raises(CommError, match="band"):
            comm.all_reduce(torch.ones(1), ReduceOp.BAND, async_op=False)
        with pytest.raises(CommError, match="it can be moved, but not reduced"):
            comm.all_reduce(
                torch.zeros(1, dtype=torch.float8_e4m3fnuz), ReduceOp.SUM, async_op=True
            )
        comm.barrier(async_op=False)

    on_each(threads(2), one)


MOVABLE = [
    dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and dtype.is_floating_point | dtype.is_complex
] + [torch.bool, torch.uint16, torch.int64]


@pytest.mark.parametrize("dtype", sorted(set(MOVABLE), key=str), ids=str)
def test_every_dense_dtype_moves(threads: Make, dtype: torch.dtype) -> None:
    size = torch.empty(1, dtype=dtype).element_size()
    pattern = torch.arange(7 * size, dtype=torch.uint8) % 2
    first, second = threads(2)
    work = first.send(pattern.view(dtype), 1, async_op=True)
    received = torch.full((7 * size,), 255, dtype=torch.uint8)
    second.recv(received.view(dtype), 0, async_op=False)
    work.wait()
    assert torch.equal(received, pattern)


@pytest.mark.parametrize("async_op", [False, True])
def test_control_c_ends_a_wait(threads: Make, async_op: bool) -> None:
    first, _second = threads(2)
    wait = first.barrier(True).wait if async_op else partial(first.barrier, False)
    arrivals = 0

    def handle(_number: int, frame: FrameType | None) -> None:
        # Between the first signal that arrives in `blocked` and the second no Python runs, so the
        # second arrived in the wait.
        nonlocal arrivals
        arrivals += frame is not None and frame.f_code is blocked.__code__
        if arrivals == 2:
            raise KeyboardInterrupt

    def blocked() -> None:
        wait()

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            blocked()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("async_op", [False, True])
def test_other_threads_run_while_one_waits(threads: Make, async_op: bool) -> None:
    first, second = threads(2)
    reached = threading.Event()

    def late() -> None:
        reached.set()
        second.barrier(async_op=False)

    thread = threading.Thread(target=late)
    thread.start()  # it needs the interpreter while this one waits for it
    first.barrier(async_op).wait()
    thread.join()
    assert reached.is_set()
