#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "ctran/gpu/driver.h"

namespace ctran {

/// Allocates a segment of `device` (device_segment.h), filled with zeros.
std::shared_ptr<void> allocateDeviceMemory(size_t bytes, int device);
/// Allocates a few 64-bit words by cuMemAlloc, filled with zeros.
std::shared_ptr<void> allocateDeviceWords(size_t words, int device);
/// Writes words of `device`; they are there on return.
void writeDeviceWords(void* to, std::span<const uint64_t> content, int device);

}  // namespace ctran
