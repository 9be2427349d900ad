#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "ctran/gpu/driver.h"
#include "ctran/memory/device_segment.h"

namespace torch::comms::gpu {

/// Names device memory of a process for the other processes of its host.
struct SharedRange {
  bool isSegment = false;
  ctran::DeviceSegment::Ticket segment;  ///< that holds it, or
  ctran::gpu::IpcHandle handle;          ///< of the allocation that holds it
  size_t offset = 0;                     ///< in that one
  size_t bytes = 0;
};

/// Memory of a segment, also an adopted one, or that cuMemAlloc has given, torch's too. Throws
/// ctran::Error (Unsupported) where it cannot be shared.
SharedRange share(ctran::gpu::DevicePtr address, size_t bytes);

/// The memory of another process here, for as long as anybody holds it. Throws ctran::Error
/// (Unsupported) where `device` cannot reach it.
std::shared_ptr<void> map(const SharedRange& range, int device);

/// A segment of `device`, zeros.
std::shared_ptr<void> allocate(size_t bytes, int device);
/// As that, for little: of memory that cuMemAlloc gives.
std::shared_ptr<void> allocateWords(size_t words, int device);

inline ctran::gpu::DevicePtr addressOf(const void* memory) {
  return reinterpret_cast<ctran::gpu::DevicePtr>(memory);
}

}  // namespace torch::comms::gpu
