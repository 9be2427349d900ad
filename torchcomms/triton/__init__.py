"""Device windows for kernels in Triton: functions to call in `@triton.jit` kernels.

They take the addresses that `TorchCommWindow.get_device_window` and `register_local_buffer` give.
A program of Triton makes a call with all its threads. Functions that return a status return `OK`,
`ABORTED`, `TIMED_OUT` or `OUT_OF_RANGE`, an int32.
"""

try:
    import triton as _triton  # noqa: F401
except ImportError as error:
    raise ImportError(
        "torchcomms.triton needs Triton, which torch for CUDA brings with it: "
        "install such a torch, or `pip install triton`"
    ) from error

from torchcomms.triton._layout import (
    ABORTED,
    ADD,
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    OK,
    OUT_OF_RANGE,
    SET,
    TIMED_OUT,
)
from torchcomms.triton._state import num_ranks, rank
from torchcomms.triton._window import (
    barrier_block,
    base,
    fence,
    flush_block,
    get_nvlink_address,
    put_block,
    read_counter,
    read_signal,
    reset_counter,
    reset_signal,
    signal_block,
    size,
    wait_counter_block,
    wait_signal_block,
    wait_signal_from_block,
)

__all__ = [
    "ABORTED",
    "ADD",
    "EQ",
    "GE",
    "GT",
    "LE",
    "LT",
    "NE",
    "OK",
    "OUT_OF_RANGE",
    "SET",
    "TIMED_OUT",
    "barrier_block",
    "base",
    "fence",
    "flush_block",
    "get_nvlink_address",
    "num_ranks",
    "put_block",
    "rank",
    "read_counter",
    "read_signal",
    "reset_counter",
    "reset_signal",
    "signal_block",
    "size",
    "wait_counter_block",
    "wait_signal_block",
    "wait_signal_from_block",
]
