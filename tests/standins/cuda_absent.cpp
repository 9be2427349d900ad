// Every function of the driver's table that the stand-in does not have: CUDA_ERROR_NOT_SUPPORTED.

#include "ctran/gpu/driver.h"

namespace {
using namespace ctran::gpu;
}

#define STAND_IN_ABSENT(name, symbol, ...)                       \
  extern "C" __attribute__((weak, visibility("default")))        \
  ctran::gpu::Result absent_##name(__VA_ARGS__) __asm__(symbol); \
  extern "C" ctran::gpu::Result absent_##name(__VA_ARGS__) { return ctran::gpu::kNotSupported; }

namespace ctran::gpu {
CTRAN_CUDA_FUNCTIONS(STAND_IN_ABSENT)
}  // namespace ctran::gpu
