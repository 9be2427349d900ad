#pragma once

#include "ctran/verbs/objects.h"

namespace ctran {

/// Registers memory of a CUDA device: by a dma-buf where driver, kernel and RDMA device have that,
/// else by its address, which needs the peer-memory module (nvidia_peermem). The error names both.
ibverbx::Expected<ibverbx::IbvMr> registerGpuMemory(const ibverbx::IbvPd& pd, int device,
                                                    void* address, size_t bytes, unsigned access);

}  // namespace ctran
