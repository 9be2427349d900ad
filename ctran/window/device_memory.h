#pragma once

#include <cstddef>
#include <memory>

#include "ctran/gpu/driver.h"

namespace ctran {

/// A segment of `device` (device_segment.h), zeros.
std::shared_ptr<void> allocateDeviceMemory(size_t bytes, int device);
/// As that, for little: 64-bit words in memory that cuMemAlloc gives.
std::shared_ptr<void> allocateDeviceWords(size_t words, int device);

}  // namespace ctran
