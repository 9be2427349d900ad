#pragma once

#include <cstddef>
#include <memory>

#include "ctran/gpu/driver.h"
#include "ctran/memory/device_sharing.h"

namespace torch::comms::gpu {

/// A segment of `device`, zeros.
std::shared_ptr<void> allocate(size_t bytes, int device);
/// As that, for little: of memory that cuMemAlloc gives.
std::shared_ptr<void> allocateWords(size_t words, int device);

inline ctran::gpu::DevicePtr addressOf(const void* memory) {
  return reinterpret_cast<ctran::gpu::DevicePtr>(memory);
}

}  // namespace torch::comms::gpu
