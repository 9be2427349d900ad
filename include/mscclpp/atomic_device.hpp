#pragma once

#include <cstdint>

#include <mscclpp/device.hpp>

/// Words that other threads, blocks, GPUs and processes read or write meanwhile. `System` orders
/// with all of them, `Device` with those of this GPU.
namespace mscclpp {

#if defined(MSCCLPP_DEVICE_CUDA)

MSCCLPP_DEVICE_INLINE uint64_t loadAcquireSystem(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
MSCCLPP_DEVICE_INLINE uint64_t loadRelaxedSystem(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
MSCCLPP_DEVICE_INLINE uint32_t loadRelaxedSystem(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
MSCCLPP_DEVICE_INLINE uint32_t loadAcquireDevice(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
MSCCLPP_DEVICE_INLINE void storeReleaseSystem(uint64_t* to, uint64_t value) {
  asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
MSCCLPP_DEVICE_INLINE void storeRelaxedSystem(uint64_t* to, uint64_t value) {
  asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
MSCCLPP_DEVICE_INLINE void storeRelaxedSystem(uint32_t* to, uint32_t value) {
  asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
MSCCLPP_DEVICE_INLINE void addReleaseSystem(uint64_t* to, uint64_t value) {
  asm volatile("red.release.sys.add.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
MSCCLPP_DEVICE_INLINE void addRelaxedSystem(uint64_t* to, uint64_t value) {
  asm volatile("red.relaxed.sys.add.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
MSCCLPP_DEVICE_INLINE bool compareSwapRelaxedDevice(uint64_t* at, uint64_t expected,
                                                    uint64_t value) {
  uint64_t before;
  asm volatile("atom.relaxed.gpu.cas.b64 %0, [%1], %2, %3;"
               : "=l"(before)
               : "l"(at), "l"(expected), "l"(value)
               : "memory");
  return before == expected;
}
MSCCLPP_DEVICE_INLINE uint32_t fetchAddAcqRelDevice(uint32_t* to, uint32_t value) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(to), "r"(value)
               : "memory");
  return before;
}
MSCCLPP_DEVICE_INLINE bool compareSwapAcqRelDevice(uint32_t* at, uint32_t expected,
                                                   uint32_t value) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.cas.b32 %0, [%1], %2, %3;"
               : "=r"(before)
               : "l"(at), "r"(expected), "r"(value)
               : "memory");
  return before == expected;
}

#else

inline uint64_t loadAcquireSystem(const uint64_t* from) {
  return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
inline uint64_t loadRelaxedSystem(const uint64_t* from) {
  return __atomic_load_n(from, __ATOMIC_RELAXED);
}
inline uint32_t loadRelaxedSystem(const uint32_t* from) {
  return __atomic_load_n(from, __ATOMIC_RELAXED);
}
inline uint32_t loadAcquireDevice(const uint32_t* from) {
  return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
inline void storeReleaseSystem(uint64_t* to, uint64_t value) {
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
}
inline void storeRelaxedSystem(uint64_t* to, uint64_t value) {
  __atomic_store_n(to, value, __ATOMIC_RELAXED);
}
inline void storeRelaxedSystem(uint32_t* to, uint32_t value) {
  __atomic_store_n(to, value, __ATOMIC_RELAXED);
}
inline void addReleaseSystem(uint64_t* to, uint64_t value) {
  __atomic_fetch_add(to, value, __ATOMIC_RELEASE);
}
inline void addRelaxedSystem(uint64_t* to, uint64_t value) {
  __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
inline bool compareSwapRelaxedDevice(uint64_t* at, uint64_t expected, uint64_t value) {
  return __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED);
}
inline uint32_t fetchAddAcqRelDevice(uint32_t* to, uint32_t value) {
  return __atomic_fetch_add(to, value, __ATOMIC_ACQ_REL);
}
inline bool compareSwapAcqRelDevice(uint32_t* at, uint32_t expected, uint32_t value) {
  return __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE);
}

#endif

}  // namespace mscclpp
