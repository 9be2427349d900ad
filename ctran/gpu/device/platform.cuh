#pragma once

// What device code needs and NVRTC does not bring. Device sources are compiled twice: by NVRTC for
// a GPU (with every unannotated function a device function), and by a host compiler for the tests
// of the protocols, where a thread of the host stands for a block (or for a thread of one).

#ifdef __CUDACC__
#define CTRAN_ON_GPU 1
#define CTRAN_INLINE __forceinline__
#define CTRAN_NOINLINE __noinline__
#define CTRAN_UNROLL _Pragma("unroll")
#else
#define CTRAN_ON_GPU 0
#define CTRAN_INLINE inline
#define CTRAN_NOINLINE inline
#define CTRAN_UNROLL
#endif

namespace ctran::device {

using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long long;
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using f32 = float;
using f64 = double;

/// The number of the lowest bit set in `mask`, which is not 0.
CTRAN_INLINE u32 lowestBit(u32 mask) {
#if CTRAN_ON_GPU
  return __ffs(mask) - 1;
#else
  return __builtin_ctz(mask);
#endif
}

static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8);

}  // namespace ctran::device
