"""What Triton has no words for: the clock, and a fence for all GPUs. Triton's interpreter knows no
instructions of a GPU, and has Python's clock; its loads and stores are those of the host."""

import time

import triton
import triton.language as tl
from triton import knobs

if knobs.runtime.interpret:

    def nanoseconds():
        return time.monotonic_ns()

    def fence_system():
        pass

else:

    @triton.jit
    def nanoseconds():
        """Each thread reads the clock for itself: what follows from it may differ among them."""
        return tl.inline_asm_elementwise(
            "mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
        )

    @triton.jit
    def fence_system():
        """__threadfence_system() of each thread."""
        tl.inline_asm_elementwise(
            "fence.sc.sys; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )
