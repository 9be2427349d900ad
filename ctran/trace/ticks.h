#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

#include "ctran/base/clock.h"

namespace ctran {

/// Whether the processor has a counter that runs at one rate on all cores, whatever they do.
/// Otherwise ticks are nanoseconds of CLOCK_MONOTONIC.
inline const bool kHasTickCounter = [] {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & 1U << 8) != 0;  // invariant TSC
#elif defined(__aarch64__)
  return true;
#else
  return false;
#endif
}();

/// A clock for records: some nanoseconds per call, no system call. One host has one origin and one
/// rate, which a reader finds out by comparing two moments with CLOCK_MONOTONIC.
inline uint64_t ticks() {
#if defined(__x86_64__)
  if (kHasTickCounter) [[likely]]
    return __rdtsc();
#elif defined(__aarch64__)
  uint64_t now;
  asm volatile("mrs %0, cntvct_el0" : "=r"(now));
  return now;
#endif
  return static_cast<uint64_t>(nowNanos());
}

}  // namespace ctran
