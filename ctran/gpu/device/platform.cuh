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

// A kernel takes one structure, `arguments`, and its block. On the host it is a function that a
// stand-in for the driver calls, once for each block.
//
// Those on flows may have several blocks of ours in one of CUDA's, which has as many rows of
// threads: one works while the other waits, on the same multiprocessor, and the rest are free.
// Their `bounds` are 512 threads and how many such blocks of CUDA's a multiprocessor should have
// room for.
#if CTRAN_ON_GPU
#define CTRAN_KERNEL(name, Arguments, threads, body)                     \
  extern "C" __global__ void __launch_bounds__(threads)                  \
      name(const __grid_constant__ ctran::device::Arguments arguments) { \
    using namespace ctran::device;                                       \
    __shared__ Guard guard;                                              \
    const Block block = thisBlock(&guard);                               \
    body;                                                                \
  }
#define CTRAN_FLOWS_KERNEL(name, Arguments, bounds, body)                \
  extern "C" __global__ void __launch_bounds__(bounds)                   \
      name(const __grid_constant__ ctran::device::Arguments arguments) { \
    using namespace ctran::device;                                       \
    __shared__ Guard guards[kMostRows];                                  \
    const Block block = thisRow(guards);                                 \
    body;                                                                \
  }
#else
#define CTRAN_KERNEL(name, Arguments, threads, body)                                               \
  extern "C" __attribute__((visibility("default"))) const unsigned long long name##Bytes =         \
      sizeof(ctran::device::Arguments);                                                            \
  extern "C" __attribute__((visibility("default"))) void name(const void* const* parameters,       \
                                                              const ctran::device::Block& block) { \
    using namespace ctran::device;                                                                 \
    const auto& arguments = *static_cast<const Arguments*>(parameters[0]);                         \
    body;                                                                                          \
  }
#define CTRAN_FLOWS_KERNEL(name, Arguments, bounds, body) CTRAN_KERNEL(name, Arguments, 512, body)
#endif

/// Bounds of kernels that move data. Those of one communicator may have more blocks than there are
/// multiprocessors, and those of another have to find room beside them.
#define CTRAN_TWO_BLOCKS 512, 2

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
