#pragma once

#include "ctran/gpu/device/platform.cuh"

#if !CTRAN_ON_GPU
#include <atomic>
#include <barrier>
#include <thread>
#endif

// The block a thread belongs to: its shape, its barrier, and the few words it shares.

namespace ctran::device {

/// Shared memory of a block, see wait.cuh. Zeroed by `enter`.
struct Guard {
  u64 lastLook;  ///< when a thread last looked at the clock and the host; 0: not yet
  u64 started;   ///< of the first look
  u32 stop;      ///< why everybody gives up
};

struct Block {
  u32 thread;  ///< of `threads`
  u32 threads;
  u32 index;  ///< of `count`
  u32 count;
  Guard* guard;
#if !CTRAN_ON_GPU
  std::barrier<>* barrier;
#endif

  u32 globalThread() const { return index * threads + thread; }
  u32 globalThreads() const { return count * threads; }
  CTRAN_INLINE void sync() const;
};

#if CTRAN_ON_GPU

CTRAN_INLINE void Block::sync() const { __syncthreads(); }

CTRAN_INLINE void pauseOnHost() {}

CTRAN_INLINE Block thisBlock(Guard* guard) {
  return {threadIdx.x, blockDim.x, blockIdx.x, gridDim.x, guard};
}

template <class T>
CTRAN_INLINE T loadShared(const T* p) {
  return *static_cast<const volatile T*>(p);
}

template <class T>
CTRAN_INLINE void storeShared(T* p, T v) {
  *static_cast<volatile T*>(p) = v;
}

/// Whether `*p` was `expected` and now is `desired`.
CTRAN_INLINE bool exchangeShared(u64* p, u64 expected, u64 desired) {
  return atomicCAS(p, expected, desired) == expected;
}

#else

CTRAN_INLINE void Block::sync() const { barrier->arrive_and_wait(); }

CTRAN_INLINE void pauseOnHost() { std::this_thread::yield(); }

template <class T>
CTRAN_INLINE T loadShared(const T* p) {
  return std::atomic_ref<T>(*const_cast<T*>(p)).load(std::memory_order_relaxed);
}

template <class T>
CTRAN_INLINE void storeShared(T* p, T v) {
  std::atomic_ref<T>(*p).store(v, std::memory_order_relaxed);
}

CTRAN_INLINE bool exchangeShared(u64* p, u64 expected, u64 desired) {
  return std::atomic_ref<u64>(*p).compare_exchange_strong(expected, desired,
                                                          std::memory_order_relaxed);
}

#endif

}  // namespace ctran::device
