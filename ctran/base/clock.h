#pragma once

#include <time.h>

#include <cstdint>

namespace ctran {

/// Returns nanoseconds of a clock that only goes forward. Its origin means nothing. A call takes
/// about 20 ns.
inline int64_t nowNanos() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// Tells the core that this is a spin loop: that costs less, and leaves more to the sibling
/// hyper-thread.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace ctran
