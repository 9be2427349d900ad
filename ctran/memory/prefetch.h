#pragma once

#include <algorithm>
#include <cstddef>

#include "ctran/memory/stream_copy.h"

namespace ctran {

/// Asks for a cache line that this core writes soon. The other cores then let go of it before the
/// store, which need not wait for them.
inline void prefetchForWrite(const void* at) {
#if defined(__x86_64__)
  // A processor that lacks the instruction ignores it. The builtin asks for a line to read, unless
  // the compiler may use all instructions of newer processors.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
#else
  __builtin_prefetch(at, 1);
#endif
}

/// Does so for the first lines of a piece of memory: as many as a core can ask for at a time.
inline void prefetchForWrite(const std::byte* at, size_t bytes) {
  constexpr size_t kMost = 64 * kCacheLine;
  for (size_t i = 0; i < std::min(bytes, kMost); i += kCacheLine) prefetchForWrite(at + i);
}

}  // namespace ctran
