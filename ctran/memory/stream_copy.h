#pragma once

#include <cstddef>

namespace ctran {

/// The bytes of a cache line.
inline constexpr size_t kCacheLine = 64;

/// Copies as memcpy does, with stores that go past the caches where the machine has such stores:
/// for data that this core will not read again. The memory must not overlap. Only after
/// `streamFence` do other cores see the data in order with later stores.
void streamCopy(std::byte* to, const std::byte* from, size_t bytes);
void streamFence();

/// Returns the size of the last-level cache, as this core sees it; a guess if the system does not
/// say.
size_t lastLevelCacheBytes();

}  // namespace ctran
