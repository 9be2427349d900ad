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

/// Of threads of a block of CUDA's, each a block of ours.
inline constexpr u32 kMostRows = 2;

#if !CTRAN_ON_GPU
/// For one launch of a kernel.
class Barrier {
 public:
  explicit Barrier(u32 threads) : barrier_(threads) {}
  void sync() { barrier_.arrive_and_wait(); }
  bool all(bool ok) {
    if (!ok) refused_ = true;
    sync();
    const bool result = !refused_;
    sync();  // nobody refuses later before all have looked
    return result;
  }

 private:
  std::barrier<> barrier_;
  std::atomic<bool> refused_{false};
};
#endif

struct Block {
  u32 thread;  ///< of `threads`
  u32 threads;
  u32 index;  ///< of `count`
  u32 count;
  Guard* guard;
#if CTRAN_ON_GPU
  u32 barrier;  ///< 0: that of CUDA's whole block
#else
  Barrier* barrier;
#endif

  u32 globalThread() const { return index * threads + thread; }
  u32 globalThreads() const { return count * threads; }
  CTRAN_INLINE void sync() const;
  /// A barrier. Whether all threads have come with `ok`: they get the same answer, so that they
  /// leave together. The barrier of a row would wait for one that has left.
  CTRAN_INLINE bool all(bool ok) const;
};

#if CTRAN_ON_GPU

CTRAN_INLINE void Block::sync() const {
  if (barrier == 0) {
    __syncthreads();
  } else {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
  }
}

CTRAN_INLINE bool Block::all(bool ok) const {
  if (barrier == 0) return __syncthreads_and(ok);
  u32 result;
  asm volatile(
      "{\n"
      ".reg .pred p, q;\n"
      "setp.ne.u32 p, %3, 0;\n"
      "bar.red.and.pred q, %1, %2, p;\n"
      "selp.u32 %0, 1, 0, q;\n"
      "}"
      : "=r"(result)
      : "r"(barrier), "r"(threads), "r"(static_cast<u32>(ok))
      : "memory");
  return result != 0;
}

CTRAN_INLINE void pauseOnHost() {}

CTRAN_INLINE Block thisBlock(Guard* guard) {
  return {threadIdx.x, blockDim.x, blockIdx.x, gridDim.x, guard, 0};
}

/// Neighbours in number are in different blocks of CUDA's: what sends shares with what receives.
CTRAN_INLINE Block thisRow(Guard* guards) {
  __builtin_assume(threadIdx.y < kMostRows);  // so that no barrier of a row is 0
  return {threadIdx.x,
          blockDim.x,
          threadIdx.y * gridDim.x + blockIdx.x,
          gridDim.x * blockDim.y,
          guards + threadIdx.y,
          1 + threadIdx.y};
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
template <class T>
CTRAN_INLINE bool exchangeShared(T* p, T expected, T desired) {
  return atomicCAS(p, expected, desired) == expected;
}

#else

CTRAN_INLINE void Block::sync() const { barrier->sync(); }

CTRAN_INLINE bool Block::all(bool ok) const { return barrier->all(ok); }

CTRAN_INLINE void pauseOnHost() { std::this_thread::yield(); }

template <class T>
CTRAN_INLINE T loadShared(const T* p) {
  return std::atomic_ref<T>(*const_cast<T*>(p)).load(std::memory_order_relaxed);
}

template <class T>
CTRAN_INLINE void storeShared(T* p, T v) {
  std::atomic_ref<T>(*p).store(v, std::memory_order_relaxed);
}

template <class T>
CTRAN_INLINE bool exchangeShared(T* p, T expected, T desired) {
  return std::atomic_ref<T>(*p).compare_exchange_strong(expected, desired,
                                                        std::memory_order_relaxed);
}

#endif

}  // namespace ctran::device
