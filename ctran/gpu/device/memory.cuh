#pragma once

#include "ctran/gpu/device/platform.cuh"

// Memory accesses that other GPUs and the host take part in, all at system scope: peers write into
// our memory over NVLink, the host into mapped words. Everything that crosses a GPU is "relaxed" or
// stronger; plain loads and stores are for data that only this kernel touches, or that a
// release-acquire pair already covers.

#if !CTRAN_ON_GPU
#include <atomic>
#include <chrono>
#endif

namespace ctran::device {

/// Sixteen bytes that are read and written whole: `.b128` is one access of the memory model
/// (PTX 8.3, sm_70), where a vector of four words would be four.
struct alignas(16) Word16 {
  u32 w[4];
};

#if CTRAN_ON_GPU

CTRAN_INLINE u32 loadRelaxed(const u32* p) {
  u32 v;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

CTRAN_INLINE u64 loadRelaxed(const u64* p) {
  u64 v;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}

CTRAN_INLINE u32 loadAcquire(const u32* p) {
  u32 v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

CTRAN_INLINE u64 loadAcquire(const u64* p) {
  u64 v;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}

CTRAN_INLINE void storeRelaxed(u32* p, u32 v) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

CTRAN_INLINE void storeRelaxed(u64* p, u64 v) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

CTRAN_INLINE void storeRelease(u32* p, u32 v) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

CTRAN_INLINE void storeRelease(u64* p, u64 v) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

CTRAN_INLINE void fenceSystem() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

/// After a fence, which may serve several flags: publishes what came before it.
CTRAN_INLINE void storeFenced(u32* p, u32 v) { storeRelaxed(p, v); }

/// Four words that other GPUs have written, past the first-level cache.
CTRAN_INLINE Word16 loadWords(const Word16* p) {
  Word16 v;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
               : "l"(p)
               : "memory");
  return v;
}

/// Nanoseconds, the same clock for every block of a GPU; ticks coarsely (up to a microsecond).
CTRAN_INLINE u64 timerNs() {
  u64 v;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v)::"memory");
  return v;
}

CTRAN_INLINE Word16 loadWhole(const Word16* p) {
  u64 low, high;
  asm volatile("{ .reg .b128 t; ld.relaxed.sys.global.b128 t, [%2]; mov.b128 {%0, %1}, t; }"
               : "=l"(low), "=l"(high)
               : "l"(p)
               : "memory");
  return {{static_cast<u32>(low), static_cast<u32>(low >> 32), static_cast<u32>(high),
           static_cast<u32>(high >> 32)}};
}

CTRAN_INLINE void storeWhole(Word16* p, const Word16& v) {
  const u64 low = v.w[0] | static_cast<u64>(v.w[1]) << 32;
  const u64 high = v.w[2] | static_cast<u64>(v.w[3]) << 32;
  asm volatile(
      "{ .reg .b128 t; mov.b128 t, {%1, %2}; st.relaxed.sys.global.b128 [%0], t; }" ::"l"(p),
      "l"(low), "l"(high)
      : "memory");
}

#else

template <class T>
CTRAN_INLINE T loadRelaxed(const T* p) {
  return std::atomic_ref<T>(*const_cast<T*>(p)).load(std::memory_order_relaxed);
}

template <class T>
CTRAN_INLINE T loadAcquire(const T* p) {
  return std::atomic_ref<T>(*const_cast<T*>(p)).load(std::memory_order_acquire);
}

template <class T>
CTRAN_INLINE void storeRelaxed(T* p, T v) {
  std::atomic_ref<T>(*p).store(v, std::memory_order_relaxed);
}

template <class T>
CTRAN_INLINE void storeRelease(T* p, T v) {
  std::atomic_ref<T>(*p).store(v, std::memory_order_release);
}

CTRAN_INLINE void fenceSystem() {}  // ThreadSanitizer knows no fences: the store releases

CTRAN_INLINE void storeFenced(u32* p, u32 v) { storeRelease(p, v); }

CTRAN_INLINE Word16 loadWords(const Word16* p) { return *p; }

CTRAN_INLINE u64 timerNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

#endif

}  // namespace ctran::device
