"""Memory that a vendor's library can register, for torch.cuda.MemPool."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from torchcomms import _comms

_VENDORS = ("nccl", "ncclx", "rccl", "rcclx")


@cache
def mem_allocator(backend: str) -> Any:
    """The torch._C._cuda_CUDAAllocator whose memory comes from `ncclMemAlloc`.

        pool = torch.cuda.MemPool(mem_allocator("nccl"))
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.zeros(1 << 20, device="cuda")

    Args:
        backend: "nccl", "ncclx", "rccl" or "rcclx".

    Raises:
        ValueError: another backend.
        RuntimeError: at the first allocation, when the library is older than 2.19.
    """
    if backend not in _VENDORS:
        raise ValueError(f"backend {backend} has no allocator of device memory")
    from torch.cuda.memory import CUDAPluggableAllocator

    library = Path(_comms.__file__).parent / "lib" / "libtorchcomms.so"
    allocator: Any = CUDAPluggableAllocator(
        str(library), f"torchcomms_{backend}_allocate", f"torchcomms_{backend}_free"
    )
    return allocator.allocator()
