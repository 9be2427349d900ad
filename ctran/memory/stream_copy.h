#pragma once

#include <cstddef>

namespace ctran {

/// Bytes of a cache line.
inline constexpr size_t kCacheLine = 64;

/// memcpy whose stores go past the caches, where the machine has such stores: for what this core
/// will not read again. The memory must not overlap. Others see the data in order with later
/// stores only after `streamFence`.
void streamCopy(std::byte* to, const std::byte* from, size_t bytes);
void streamFence();

/// Of the last level, as this core sees it; a guess where the system does not say.
size_t lastLevelCacheBytes();

}  // namespace ctran
