"""Windows of backend nccl on GPUs."""

from __future__ import annotations

from gpu_ranks import device_windows
from harness import gpu_windows as windows

from nccl_ranks import Make, case


@case(world=2)
def windows_are_written_by_others(make: Make) -> None:
    windows.windows_are_written_by_others(make, "nccl")


@case(world=2)
def operations_of_windows_are_recorded(make: Make) -> None:
    windows.operations_of_windows_are_recorded(make, "nccl")


@case(world=2)
def windows_expose_ordinary_tensors(make: Make) -> None:
    windows.windows_expose_ordinary_tensors(make, "nccl")


@case(world=2)
def windows_expose_memory_of_nccl(make: Make) -> None:
    windows.windows_expose_memory_of_nccl(make, "nccl")


@case(world=2, breaks=True)
def windows_expose_expandable_segments(make: Make) -> None:
    windows.windows_expose_expandable_segments(make, "nccl")


@case(world=2)
def signals_have_values_and_are_captured(make: Make) -> None:
    windows.signals_have_values_and_are_captured(make, "nccl")


@case(world=2)
def counted_signals_are_captured(make: Make) -> None:
    windows.counted_signals_are_captured(make, "nccl")


@case(world=2)
def signals_are_compared(make: Make) -> None:
    windows.signals_are_compared(make, "nccl")


@case(world=2)
def wrong_calls_of_windows_are_refused(make: Make) -> None:
    windows.wrong_calls_of_windows_are_refused(make, "nccl")


@case(world=2, breaks=True)
def a_signal_that_does_not_come_times_out(make: Make) -> None:
    windows.a_signal_that_does_not_come_times_out(make, "nccl")


@case(world=2, breaks=True)
def a_signal_that_a_replay_waits_for_times_out(make: Make) -> None:
    windows.a_signal_that_a_replay_waits_for_times_out(make, "nccl")


@case(world=2, breaks=True)
def an_abort_ends_a_wait_for_a_signal(make: Make) -> None:
    windows.an_abort_ends_a_wait_for_a_signal(make, "nccl")


@case(world=2, breaks=True)
def a_window_goes_while_it_waits_in_vain(make: Make) -> None:
    windows.a_window_goes_while_it_waits_in_vain(make, "nccl")


@case(world=2)
def kernels_put_signal_and_wait(make: Make) -> None:
    make(2).run(device_windows.exchanges, "nccl")


@case(world=2, module="triton")
def triton_kernels_put_signal_and_wait(make: Make) -> None:
    make(2).run(device_windows.exchanges, "nccl", "triton")


@case(world=2, breaks=True)
def a_wait_of_a_kernel_times_out(make: Make) -> None:
    device_windows.waits_time_out(make, "nccl")


@case(world=2, breaks=True)
def an_abort_ends_the_waits_of_kernels(make: Make) -> None:
    device_windows.aborts_end_waits(make, "nccl")


@case(world=2, breaks=True)
def a_kernel_does_not_wait_for_a_dead_rank(make: Make) -> None:
    device_windows.deaths_end_waits(make, "nccl")
