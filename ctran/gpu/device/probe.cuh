#pragma once

#include "ctran/gpu/device/memory.cuh"

// The functional test of peer access: one device writes a pattern through its mapping of another's
// memory, the owner reads it back (and the other way round). Drivers have been seen to report
// access that then loses or misplaces data.

namespace ctran::device {

CTRAN_INLINE u32 patternAt(u32 seed, u64 index) {
  u32 x = static_cast<u32>(index) * 2654435761u ^ seed;
  x ^= x >> 15;
  return x * 2246822519u + 1;
}

CTRAN_INLINE void writePattern(u32* words, u64 count, u32 seed) {
  const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < count; i += stride) {
    storeRelaxed(words + i, patternAt(seed, i));
  }
}

/// Adds the number of words that differ from the pattern to `*wrong`.
CTRAN_INLINE void checkPattern(const u32* words, u64 count, u32 seed, u32* wrong) {
  const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
  u32 found = 0;
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < count; i += stride) {
    found += loadRelaxed(words + i) != patternAt(seed, i);
  }
  if (found) atomicAdd(wrong, found);
}

}  // namespace ctran::device

extern "C" __global__ void ctranWritePattern(ctran::device::u32* words, ctran::device::u64 count,
                                             ctran::device::u32 seed) {
  ctran::device::writePattern(words, count, seed);
}

extern "C" __global__ void ctranCheckPattern(const ctran::device::u32* words,
                                             ctran::device::u64 count, ctran::device::u32 seed,
                                             ctran::device::u32* wrong) {
  ctran::device::checkPattern(words, count, seed, wrong);
}
