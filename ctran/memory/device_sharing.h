#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ctran/gpu/driver.h"
#include "ctran/memory/device_segment.h"

namespace ctran {

/// Names device memory of a process for the other processes of its host. It is plain data.
struct SharedRange {
  uint64_t isSegment = 0;         ///< a whole word, because it comes from others
  DeviceSegment::Ticket segment;  ///< the segment that holds it, or
  gpu::IpcHandle handle{};        ///< the allocation that holds it
  size_t offset = 0;              ///< offset in that one
  size_t bytes = 0;
};

/// Names memory of a segment, also an adopted one, or memory that cuMemAlloc has given, torch's
/// too. Throws Error(Unsupported) if it cannot be shared.
SharedRange shareDeviceMemory(gpu::DevicePtr address, size_t bytes);

/// Maps the memory of another process, for as long as the result is held; null if it has no bytes.
/// Throws Error(Unsupported) if `device` cannot reach it.
std::shared_ptr<void> mapDeviceMemory(const SharedRange& range, int device);

}  // namespace ctran
