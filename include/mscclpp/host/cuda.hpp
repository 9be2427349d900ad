#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include <mscclpp/host/runtime.hpp>

/// The names of CUDA that kernels and the code around them use, on a machine without a GPU: device
/// memory is the host's, and a stream is the calling thread.

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
/// Of a block, which stays on one thread of the host.
#define __shared__ static thread_local

struct alignas(8) uint2 {
  unsigned int x, y;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) uint4 {
  unsigned int x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};
struct alignas(16) double2 {
  double x, y;
};

inline uint2 make_uint2(unsigned int x, unsigned int y) { return {x, y}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline uint4 make_uint4(unsigned int x, unsigned int y, unsigned int z, unsigned int w) {
  return {x, y, z, w};
}
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }

inline constexpr int warpSize = 32;

inline void __syncthreads() { mscclpp::host::syncThreads(); }
inline void __syncwarp(unsigned int = 0xffffffffU) { mscclpp::host::syncWarp(); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __trap() { std::abort(); }
inline void __nanosleep(unsigned int) { mscclpp::host::yield(); }

template <class T>
T __ldg(const T* pointer) {
  return *pointer;
}

template <class T>
T __shfl_sync(unsigned int, T value, int lane, int = warpSize) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = mscclpp::host::shuffle(bits, lane);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
T __shfl_xor_sync(unsigned int mask, T value, int with, int = warpSize) {
  return __shfl_sync(mask, value, static_cast<int>(threadIdx.x % warpSize) ^ with);
}
template <class T>
T __shfl_down_sync(unsigned int mask, T value, unsigned int by, int = warpSize) {
  const auto lane = static_cast<int>(threadIdx.x % warpSize + by);
  return __shfl_sync(mask, value,
                     lane < warpSize ? lane : static_cast<int>(threadIdx.x % warpSize));
}

/// T, which is an integer and not deduced.
template <class T>
using OnlyInteger = typename std::enable_if<std::is_integral_v<T>, T>::type;

template <class T>
T atomicAdd(T* to, OnlyInteger<T> value) {
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicExch(T* to, OnlyInteger<T> value) {
  return __atomic_exchange_n(to, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicCAS(T* to, OnlyInteger<T> expected, OnlyInteger<T> value) {
  __atomic_compare_exchange_n(to, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}

// As CUDA declares them, so that a library serves programs compiled either way.
using cudaStream_t = struct CUstream_st*;
using CUdeviceptr = unsigned long long;
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2 };
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};

inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "an error of the host's stand-in for CUDA";
}
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t = nullptr) {
  return cudaMemcpy(to, from, bytes, kind);
}
inline cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t = nullptr) {
  return cudaMemset(to, value, bytes);
}
template <class T>
cudaError_t cudaMalloc(T** pointer, size_t bytes) {
  *pointer = static_cast<T*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  return *pointer != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
inline cudaError_t cudaFree(void* pointer) {
  std::free(pointer);
  return cudaSuccess;
}

namespace mscclpp::host {

/// What `kernel<<<grid, block, sharedBytes, stream>>>(arguments)` becomes, see
/// mscclpp.compile_native: the arguments are evaluated once, and each thread gets copies.
class Launch {
 public:
  explicit Launch(dim3 grid, dim3 block, size_t sharedBytes = 0, cudaStream_t = nullptr)
      : grid_(grid), block_(block), sharedBytes_(sharedBytes) {}

  template <class Kernel, class... Arguments>
  void operator()(const Kernel& kernel, const Arguments&... arguments) const {
    launch(grid_, block_, sharedBytes_, [&] { kernel(arguments...); });
  }

 private:
  const dim3 grid_;
  const dim3 block_;
  const size_t sharedBytes_;
};

}  // namespace mscclpp::host
