"""Windows of GPUs: memory that ranks map, written by copies and signals of streams."""

from __future__ import annotations

from datetime import timedelta

import torch
from harness import Rank

import torchcomms
from nccl_ranks import Make, case
from torchcomms import ReduceOp, SignalCmpOp, TorchComm, TorchCommWinAccessType, TorchCommWindow

COUNT = 10_000
UNIFIED = TorchCommWinAccessType.WIN_ACCESS_TYPE_UNIFIED


def _value(rank: Rank, origin: int, target: int, lap: int = 0) -> torch.Tensor:
    values = torch.arange(COUNT, dtype=torch.float32) + 1000 * origin + 100 * target + lap
    return values.to(rank.device("nccl"))


def _equal(rank: Rank, found: torch.Tensor, expected: torch.Tensor) -> None:
    rank.synchronize("nccl")
    assert torch.equal(found.cpu(), expected.cpu()), (found, expected)


def _stripe(own: torch.Tensor, origin: int) -> torch.Tensor:
    return own[COUNT * origin : COUNT * (origin + 1)]


def _exchange(rank: Rank, comm: TorchComm, window: TorchCommWindow, own: torch.Tensor) -> None:
    """Every rank writes its stripe at every rank, and reads it back."""
    for lap, async_op in enumerate((False, True)):
        works = []
        for target in range(rank.size):
            source = _value(rank, rank.rank, target, lap)
            works.append(window.put(source, target, COUNT * rank.rank, async_op))
            works.append(window.signal(target, async_op))
            del source  # the work holds it
        for origin in range(rank.size):
            window.wait_signal(origin, async_op).wait()
        if not rank.gpu().is_real:
            rank.synchronize("nccl")  # torch does not know of the stand-in's streams
        copy = own.clone()  # on the stream that has waited
        for work in works:
            work.wait()
        for origin in range(rank.size):
            _equal(rank, _stripe(copy, origin), _value(rank, origin, rank.rank, lap))
        comm.barrier(async_op=False)
        for target in range(rank.size):
            back = torch.full((COUNT,), -1.0, device=own.device)
            window.get(back, target, COUNT * rank.rank, async_op).wait()
            _equal(rank, back, _value(rank, rank.rank, target, lap))
        comm.barrier(async_op=False)
        rank.synchronize("nccl")


def _allocates(rank: Rank) -> None:
    comm = rank.comm("nccl")
    window = comm.window_allocate(4 * COUNT * rank.size, signal_size=64)
    assert window.get_size() == 4 * COUNT * rank.size
    assert window.get_device() == rank.device("nccl")
    own = window.get_tensor(rank.rank, [COUNT * rank.size], torch.float32)
    assert own is not None
    assert not own.cpu().any()
    comm.barrier(async_op=False)
    rank.synchronize("nccl")
    _exchange(rank, comm, window, own)
    # The memory of the next rank, as a tensor here.
    following = (rank.rank + 1) % rank.size
    assert window.get_attr(following).access_type == UNIFIED
    view = window.get_tensor(following, [COUNT], torch.float32, 0)
    assert view is not None
    _equal(rank, view, _value(rank, 0, following, 1))
    comm.barrier(async_op=False)
    rank.synchronize("nccl")
    view.fill_(rank.rank + 0.5)
    rank.synchronize("nccl")
    comm.barrier(async_op=False)
    _equal(rank, own[:COUNT], torch.full((COUNT,), (rank.rank - 1) % rank.size + 0.5))
    del view, own
    window.tensor_deregister()
    again = comm.window_allocate(64)
    again.tensor_deregister()


@case(world=2)
def windows_are_written_by_others(make: Make) -> None:
    make(1).run(_allocates)
    make(2).run(_allocates)


def _registers(rank: Rank) -> None:
    """Ordinary memory of torch, at some place in its block."""
    if not rank.gpu().is_real:
        return  # what torch has is not the stand-in's
    comm = rank.comm("nccl")
    whole = torch.zeros(5000 + COUNT * rank.size, device=rank.device("nccl"))
    own = whole[5000:]
    for _ in range(2):
        window = comm.new_window(own)
        _exchange(rank, comm, window, own)
        following = (rank.rank + 1) % rank.size
        _equal(rank, _stripe(window.map_remote_tensor(following), 0), _value(rank, 0, following, 1))
        comm.barrier(async_op=False)
        rank.synchronize("nccl")
        window.tensor_deregister()
    assert whole[:5000].cpu().eq(0).all()


@case(world=2)
def windows_expose_ordinary_tensors(make: Make) -> None:
    make(2).run(_registers)


def _numbered(rank: Rank) -> None:
    """Signals with values go round; a graph passes them too."""
    comm = rank.comm("nccl")
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
    rank.synchronize("nccl")

    source, result = _value(rank, rank.rank, following), torch.zeros_like(own)

    def step() -> None:
        window.put(source, following, 0, async_op=True)
        window.signal(1, 1, following, async_op=True)
        window.wait_signal(1, 1, SignalCmpOp.EQ, async_op=True)
        result.copy_(own)
        window.signal(1, 0, rank.rank, async_op=True)  # as before, for the next replay

    if rank.gpu().is_real:
        replay = rank.gpu().capture(step)
        for lap in range(20):
            source.copy_(_value(rank, rank.rank, following, lap))
            replay()
            _equal(rank, result, _value(rank, (rank.rank - 1) % rank.size, rank.rank, lap))
            comm.barrier(async_op=False)  # the word is 0 again before it is written again
            rank.synchronize("nccl")
        del replay
    window.tensor_deregister()


@case(world=2)
def signals_have_values_and_are_captured(make: Make) -> None:
    make(2).run(_numbered)


def _wrong(rank: Rank) -> None:
    comm = rank.comm("nccl")
    window = comm.window_allocate(4 * COUNT, signal_size=64)
    source = _value(rank, 0, 0)
    for call, told in (
        (lambda: window.put(source, rank.size, 0, async_op=False), "rank must be in range"),
        (lambda: window.put(source, 0, 1, async_op=False), "exceeds the window size"),
        (lambda: window.signal(8, 1, 0, async_op=False), "signal_disp must be in range"),
        (lambda: window.wait_signal(0, 1, SignalCmpOp.LT, async_op=False), "EQ, GE and GT only"),
    ):
        said = ""
        try:
            call()
        except torchcomms.CommError as error:
            said = str(error)
        assert told in said, said
    window.tensor_deregister()


@case(world=2)
def wrong_calls_of_windows_are_refused(make: Make) -> None:
    make(2).run(_wrong)


def _waits_in_vain(rank: Rank, end: str) -> object:
    """The stream, and others, are free again afterwards."""
    limit = timedelta(seconds=2 if end == "timeout" else 30)
    comm = rank.new_comm("nccl", f"vain-{end}", timeout=timedelta(seconds=30))
    comm.all_reduce(_value(rank, 0, 0), ReduceOp.SUM, async_op=False)
    window = comm.window_allocate(64, signal_size=64)
    rank.synchronize("nccl")
    if rank.rank == 1:
        rank.listen()
        if end == "abort":
            comm.abort()
        return None
    works = [window.wait_signal(1, async_op=True, timeout=limit)]
    works.append(window.wait_signal(3, 7, SignalCmpOp.EQ, async_op=True, timeout=limit))
    rank.say("waiting")
    kind = torchcomms.CommTimeoutError if end == "timeout" else torchcomms.AbortedError
    try:
        works[0].wait_blocking()
    except kind as error:
        ranks = error.ranks
    rank.synchronize("nccl")
    tensor = _value(rank, 1, 1)
    tensor.mul_(2)
    _equal(rank, tensor, 2 * _value(rank, 1, 1))
    rank.say("gave up")
    return ranks


@case(world=2, breaks=True)
def a_signal_that_does_not_come_times_out(make: Make) -> None:
    job = make(2).start(_waits_in_vain, "timeout")
    assert [job.hear(0), job.hear(0)] == ["waiting", "gave up"]
    job.say(1)
    assert job.results() == [[1], None]


@case(world=2, breaks=True)
def an_abort_ends_a_wait_for_a_signal(make: Make) -> None:
    job = make(2).start(_waits_in_vain, "abort")
    assert job.hear(0) == "waiting"
    job.say(1)
    assert job.results() == [[1], None]
