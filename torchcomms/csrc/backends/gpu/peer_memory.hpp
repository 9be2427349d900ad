#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "ctran/gpu/driver.h"

namespace torch::comms::gpu {

/// Names device memory of a process for the other processes of its host.
struct SharedRange {
  ctran::gpu::IpcHandle handle;  ///< of the allocation that holds it
  size_t offset = 0;             ///< in that allocation
  size_t bytes = 0;
};

/// Memory that cuMemAlloc has given, torch's too. Throws ctran::Error (Unsupported) where the
/// driver cannot share it: expandable segments, memory of the library.
SharedRange share(ctran::gpu::DevicePtr address, size_t bytes);

/// The memory of another process here, for as long as anybody holds it. Throws ctran::Error
/// (Unsupported) where `device` cannot reach it.
std::shared_ptr<void> map(const SharedRange& range, int device);

/// Fresh memory of `device` that can be shared, zeros.
std::shared_ptr<void> allocate(size_t bytes, int device);

inline ctran::gpu::DevicePtr addressOf(const void* memory) {
  return reinterpret_cast<ctran::gpu::DevicePtr>(memory);
}

}  // namespace torch::comms::gpu
