#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ctran/gpu/driver.h"
#include "ctran/memory/device_segment.h"

namespace ctran {

/// Names device memory of a process for the other processes of its host. Plain data.
struct SharedRange {
  uint64_t isSegment = 0;         ///< a whole word: it comes from others
  DeviceSegment::Ticket segment;  ///< that holds it, or
  gpu::IpcHandle handle{};        ///< of the allocation that holds it
  size_t offset = 0;              ///< in that one
  size_t bytes = 0;
};

/// Memory of a segment, also an adopted one, or that cuMemAlloc has given, torch's too. Throws
/// Error(Unsupported) where it cannot be shared.
SharedRange shareDeviceMemory(gpu::DevicePtr address, size_t bytes);

/// The memory of another process here, for as long as anybody holds it; null if it has no bytes.
/// Throws Error(Unsupported) where `device` cannot reach it.
std::shared_ptr<void> mapDeviceMemory(const SharedRange& range, int device);

}  // namespace ctran
