"""Windows of backend ctran on GPUs."""

from __future__ import annotations

from harness import gpu_windows as windows

from gpu_ranks import BACKEND, Make, case


@case(world=2)
def windows_are_written_by_others(make: Make) -> None:
    windows.windows_are_written_by_others(make, BACKEND)


@case(world=2)
def ncclx_has_the_same_windows(make: Make) -> None:
    windows.windows_are_written_by_others(make, "ncclx")


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
