"""GPU memory of which a backend can make the most, for torch.cuda.MemPool."""

from __future__ import annotations

from functools import cache
from typing import Any

from torchcomms import _engine


@cache
def mem_allocator(backend: str) -> Any:
    """The torch._C._cuda_CUDAAllocator of a backend.

        pool = torch.cuda.MemPool(comm.mem_allocator)
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.zeros(1 << 20, device="cuda")

    Args:
        backend: "ctran", whose memory other ranks' GPUs map ("ncclx" takes that, too), or "nccl",
            "rccl" or "rcclx", of which it comes from `ncclMemAlloc`.

    Raises:
        RuntimeError: where this torch has no CUDA.
    """
    from torch.cuda.memory import CUDAPluggableAllocator

    library = _engine.folder() / "lib" / "libtorchcomms.so"
    allocator: Any = CUDAPluggableAllocator(
        str(library), f"torchcomms_{backend}_allocate", f"torchcomms_{backend}_free"
    )
    return allocator.allocator()
