"""Windows of backend ctran on GPUs."""

from __future__ import annotations

import gc
from datetime import timedelta

import torch
from harness import Rank
from harness import gpu_windows as windows

from gpu_ranks import BACKEND, Make, case
from torchcomms import ReduceOp


@case(world=2)
def windows_are_written_by_others(make: Make) -> None:
    windows.windows_are_written_by_others(make, BACKEND)


@case(world=2)
def ncclx_has_the_same_windows(make: Make) -> None:
    windows.windows_are_written_by_others(make, "ncclx")


@case(world=2)
def operations_of_windows_are_recorded(make: Make) -> None:
    windows.operations_of_windows_are_recorded(make, BACKEND)


@case(world=2)
def windows_expose_ordinary_tensors(make: Make) -> None:
    windows.windows_expose_ordinary_tensors(make, BACKEND)


@case(world=2)
def windows_expose_memory_of_nccl(make: Make) -> None:
    windows.windows_expose_memory_of_nccl(make, BACKEND)


@case(world=2, breaks=True)
def windows_expose_expandable_segments(make: Make) -> None:
    windows.windows_expose_expandable_segments(make, BACKEND)


@case(world=2)
def signals_have_values_and_are_captured(make: Make) -> None:
    windows.signals_have_values_and_are_captured(make, BACKEND)


@case(world=2)
def counted_signals_are_captured(make: Make) -> None:
    windows.counted_signals_are_captured(make, BACKEND)


@case(world=2)
def signals_are_compared(make: Make) -> None:
    windows.signals_are_compared(make, BACKEND)


@case(world=2)
def wrong_calls_of_windows_are_refused(make: Make) -> None:
    windows.wrong_calls_of_windows_are_refused(make, BACKEND)


@case(world=2, breaks=True)
def a_signal_that_does_not_come_times_out(make: Make) -> None:
    windows.a_signal_that_does_not_come_times_out(make, BACKEND)


@case(world=2, breaks=True)
def a_signal_that_a_replay_waits_for_times_out(make: Make) -> None:
    windows.a_signal_that_a_replay_waits_for_times_out(make, BACKEND)


@case(world=2, breaks=True)
def an_abort_ends_a_wait_for_a_signal(make: Make) -> None:
    windows.an_abort_ends_a_wait_for_a_signal(make, BACKEND)


@case(world=2, breaks=True)
def a_window_goes_while_it_waits_in_vain(make: Make) -> None:
    windows.a_window_goes_while_it_waits_in_vain(make, BACKEND)


def _goes(rank: Rank) -> None:
    """Rank 0 waits for rank 1 in a kernel when it lets go of all that another communicator had."""
    stays = rank.new_comm(BACKEND, "stays", timeout=timedelta(seconds=20))
    goes = rank.new_comm(BACKEND, "goes")
    window = goes.window_allocate(64, signal_size=64)
    tensor = torch.ones(1 << 10, device=rank.device(BACKEND))
    stays.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    rank.synchronize(BACKEND)
    if rank.rank == 1:
        rank.listen()
    work = stays.all_reduce(tensor, ReduceOp.SUM, async_op=True)
    if rank.rank == 0:
        del window, goes
        gc.collect()
        rank.say("gone")
    work.wait_blocking()
    rank.synchronize(BACKEND)
    assert torch.equal(tensor.cpu(), torch.full((1 << 10,), 4.0))
    stays.finalize()


@case(world=2, breaks=True)
def a_window_goes_while_a_kernel_waits(make: Make) -> None:
    job = make(2).start(_goes)
    assert job.hear(0) == "gone"
    job.say(1)
    job.results()
