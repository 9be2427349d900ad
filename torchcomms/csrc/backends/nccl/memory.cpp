// Memory of which the library can make the most, for torch.cuda.MemPool: the functions that a
// torch.cuda.memory.CUDAPluggableAllocator asks for. torchcomms/_gpu_memory.py hands them over.

#include <sys/types.h>

#include "ctran/base/log.h"
#include "torchcomms/csrc/backends/nccl/library.hpp"
#include "torchcomms/csrc/backends/nccl/vendors.hpp"

namespace torch::comms::nccl {

namespace {

void* allocate(const char* backend, size_t bytes, int device) {
  const Vendor& vendor = vendorOf(backend);
  const Library& library = Library::of(vendor);
  library.require(library.memAlloc, "mem_allocator", 21900);
  const ctran::gpu::ActiveDevice active(ctran::gpu::Runtime::of(vendor.platform), device);
  void* address = nullptr;
  return library.memAlloc(&address, bytes) == Result::Success ? address : nullptr;
}

void release(const char* backend, void* address, int device) noexcept {
  try {
    const Vendor& vendor = vendorOf(backend);
    const ctran::gpu::ActiveDevice active(ctran::gpu::Runtime::of(vendor.platform), device);
    Library::of(vendor).memFree(address);
  } catch (const std::exception& error) {
    ctran::log(ctran::LogComponent::Torch, ctran::LogLevel::Warn,
               "memory of %s could not be freed: %s", backend, error.what());
  }
}

}  // namespace

#define TORCHCOMMS_ALLOCATOR(backend)                                                      \
  extern "C" __attribute__((visibility("default"))) void* torchcomms_##backend##_allocate( \
      ssize_t bytes, int device, Stream) {                                                 \
    return allocate(#backend, static_cast<size_t>(bytes), device);                         \
  }                                                                                        \
  extern "C" __attribute__((visibility("default"))) void torchcomms_##backend##_free(      \
      void* address, ssize_t, int device, Stream) {                                        \
    release(#backend, address, device);                                                    \
  }

TORCHCOMMS_ALLOCATOR(nccl)
TORCHCOMMS_ALLOCATOR(ncclx)
TORCHCOMMS_ALLOCATOR(rccl)
TORCHCOMMS_ALLOCATOR(rcclx)

}  // namespace torch::comms::nccl
