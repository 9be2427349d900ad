#pragma once

#include <cstdint>

#include "ctran/collective/gpu/context.h"

namespace ctran {

/// The rounding of a reduce-scatter of fp32 that sends bf16, rounded at random.
struct Quantization {
  uint64_t seed = 0;
  const uint64_t* seedAt = nullptr;  ///< if not null, the seed is there, in device memory
};

/// Launches a reduce-scatter, sum or average, of fp32 (reduce_scatter/quantized.cuh).
void launchQuantized(const GpuContext& gpu, const Collective& collective,
                     const Quantization& quantization, const GpuTarget& target);

}  // namespace ctran
