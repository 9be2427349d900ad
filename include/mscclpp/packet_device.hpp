#pragma once

#include <cstdint>
#include <cstring>

#include <mscclpp/poll_device.hpp>

namespace mscclpp {

namespace detail {

/// A payload, or the `left` bytes that are left of it: of a thread alone.
template <class Payload>
MSCCLPP_DEVICE_INLINE void copyPayload(Payload* to, const char* from, uint64_t left) {
  auto* const bytes = reinterpret_cast<char*>(to);
  if (left >= sizeof(Payload) && reinterpret_cast<uintptr_t>(from) % sizeof(Payload) == 0) {
    *to = *reinterpret_cast<const Payload*>(from);
    return;
  }
  for (uint64_t i = 0; i < sizeof(Payload) && i < left; ++i) bytes[i] = from[i];
}

template <class Payload>
MSCCLPP_DEVICE_INLINE void copyPayload(char* to, const Payload* from, uint64_t left,
                                       uint64_t most) {
  const auto* const bytes = reinterpret_cast<const char*>(from);
  if (left >= most && reinterpret_cast<uintptr_t>(to) % sizeof(Payload) == 0) {
    *reinterpret_cast<Payload*>(to) = *from;
    return;
  }
  for (uint64_t i = 0; i < most && i < left; ++i) to[i] = bytes[i];
}

}  // namespace detail

/// Eight bytes, with a flag beside each four: whoever sees both flags sees the bytes, as each half
/// is written at once. The reader clears nothing, so the flag of each use is another one.
struct alignas(16) LL16Packet {
  using Payload = uint2;

  uint32_t data1;
  uint32_t flag1;
  uint32_t data2;
  uint32_t flag2;

  MSCCLPP_DEVICE_INLINE void write(uint32_t value1, uint32_t value2, uint32_t flag) {
#if defined(MSCCLPP_DEVICE_CUDA)
    asm volatile("st.volatile.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(this), "r"(value1), "r"(flag),
                 "r"(value2), "r"(flag)
                 : "memory");
#else
    auto* const halves = reinterpret_cast<uint64_t*>(this);
    storeRelaxedSystem(halves, value1 | static_cast<uint64_t>(flag) << 32);
    storeRelaxedSystem(halves + 1, value2 | static_cast<uint64_t>(flag) << 32);
#endif
  }
  MSCCLPP_DEVICE_INLINE void write(uint2 value, uint32_t flag) { write(value.x, value.y, flag); }
  MSCCLPP_DEVICE_INLINE void write(uint64_t value, uint32_t flag) {
    write(static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32), flag);
  }

  /// Reads it as it is now. Whether it does NOT carry `flag` yet.
  MSCCLPP_DEVICE_INLINE bool readOnce(uint32_t flag, uint2& data) const {
#if defined(MSCCLPP_DEVICE_CUDA)
    uint32_t first, second;
    asm volatile("ld.volatile.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(data.x), "=r"(first), "=r"(data.y), "=r"(second)
                 : "l"(this)
                 : "memory");
    return first != flag || second != flag;
#else
    const auto* const halves = reinterpret_cast<const uint64_t*>(this);
    const uint64_t first = loadRelaxedSystem(halves);
    const uint64_t second = loadRelaxedSystem(halves + 1);
    data.x = static_cast<uint32_t>(first);
    data.y = static_cast<uint32_t>(second);
    return first >> 32 != flag || second >> 32 != flag;
#endif
  }

  /// Waits until it carries `flag`.
  MSCCLPP_DEVICE_INLINE uint2 read(uint32_t flag, int64_t maxSpinCount = -1,
                                   WaitLimit* limit = nullptr) const {
    uint2 data{};
    waitUntil([&] { return !readOnce(flag, data); }, limit, maxSpinCount);
    return data;
  }

  MSCCLPP_DEVICE_INLINE void clear() { write(0U, 0U, 0U); }
};

/// Four bytes and a flag, written at once.
struct alignas(8) LL8Packet {
  using Payload = uint32_t;

  uint32_t data;
  uint32_t flag;

  MSCCLPP_DEVICE_INLINE void write(uint32_t value, uint32_t withFlag) {
    storeRelaxedSystem(reinterpret_cast<uint64_t*>(this), value | static_cast<uint64_t>(withFlag)
                                                                      << 32);
  }

  MSCCLPP_DEVICE_INLINE bool readOnce(uint32_t wanted, uint32_t& value) const {
    const uint64_t both = loadRelaxedSystem(reinterpret_cast<const uint64_t*>(this));
    value = static_cast<uint32_t>(both);
    return both >> 32 != wanted;
  }

  MSCCLPP_DEVICE_INLINE uint32_t read(uint32_t wanted, int64_t maxSpinCount = -1,
                                      WaitLimit* limit = nullptr) const {
    uint32_t value = 0;
    waitUntil([&] { return !readOnce(wanted, value); }, limit, maxSpinCount);
    return value;
  }

  MSCCLPP_DEVICE_INLINE void clear() { write(0U, 0U); }
};

using LLPacket = LL16Packet;

}  // namespace mscclpp
