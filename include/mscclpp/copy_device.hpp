#pragma once

#include <cstddef>

#include <mscclpp/packet_device.hpp>

namespace mscclpp {

namespace detail {

/// `bytes` of units of T, which both pointers are aligned for; the rest is left.
template <class T>
MSCCLPP_DEVICE_INLINE void copyUnits(void* to, const void* from, uint64_t bytes, uint32_t threadId,
                                     uint32_t numThreads) {
  auto* const target = static_cast<T*>(to);
  const auto* const origin = static_cast<const T*>(from);
  const uint64_t units = bytes / sizeof(T);
  for (uint64_t i = threadId; i < units; i += numThreads) target[i] = origin[i];
}

}  // namespace detail

/// Copies `bytes` with `numThreads` threads, of which this is `threadId`. Any address, any size; at
/// full width where both addresses are equally aligned.
MSCCLPP_DEVICE_INLINE void copyBytes(void* to, const void* from, uint64_t bytes, uint32_t threadId,
                                     uint32_t numThreads) {
  const auto target = reinterpret_cast<uintptr_t>(to);
  const auto origin = reinterpret_cast<uintptr_t>(from);
  auto* const t = static_cast<char*>(to);
  const auto* const o = static_cast<const char*>(from);
  if ((target ^ origin) % 16 == 0) {
    uint64_t head = (16 - target % 16) % 16;
    if (head > bytes) head = bytes;
    const uint64_t body = (bytes - head) / 16 * 16;
    detail::copyUnits<char>(t, o, head, threadId, numThreads);
    detail::copyUnits<int4>(t + head, o + head, body, threadId, numThreads);
    const uint64_t done = head + body;
    detail::copyUnits<char>(t + done, o + done, bytes - done, threadId, numThreads);
  } else if ((target | origin) % 4 == 0) {
    const uint64_t body = bytes / 4 * 4;
    detail::copyUnits<int>(t, o, body, threadId, numThreads);
    detail::copyUnits<char>(t + body, o + body, bytes - body, threadId, numThreads);
  } else {
    detail::copyUnits<char>(t, o, bytes, threadId, numThreads);
  }
}

/// The same. What the pointers are aligned for is found out; without CopyRemainder the bytes after
/// the last whole unit of Alignment bytes are left.
template <int Alignment = 16, bool CopyRemainder = true>
MSCCLPP_DEVICE_INLINE void copy(void* to, void* from, uint64_t bytes, uint32_t threadId,
                                uint32_t numThreads) {
  static_assert(Alignment == 4 || Alignment == 8 || Alignment == 16, "it is 4, 8 or 16");
  copyBytes(to, from, CopyRemainder ? bytes : bytes / Alignment * Alignment, threadId, numThreads);
}

/// Writes `originBytes`, which are in any number, as packets that carry `flag`.
template <class PacketType = LL16Packet>
MSCCLPP_DEVICE_INLINE void copyToPackets(void* targetPtr, const void* originPtr,
                                         uint64_t originBytes, uint32_t threadId,
                                         uint32_t numThreads, uint32_t flag) {
  using Payload = typename PacketType::Payload;
  auto* const packets = static_cast<PacketType*>(targetPtr);
  const auto* const origin = static_cast<const char*>(originPtr);
  const uint64_t whole = (originBytes + sizeof(Payload) - 1) / sizeof(Payload);
  for (uint64_t i = threadId; i < whole; i += numThreads) {
    Payload payload{};
    const uint64_t left = originBytes - i * sizeof(Payload);
    detail::copyPayload(&payload, origin + i * sizeof(Payload), left);
    packets[i].write(payload, flag);
  }
}

/// Waits for the packets that carry `flag`, and writes what they bring: `targetBytes` of it.
template <class PacketType = LL16Packet>
MSCCLPP_DEVICE_INLINE void copyFromPackets(void* targetPtr, const void* originPtr,
                                           uint64_t targetBytes, uint32_t threadId,
                                           uint32_t numThreads, uint32_t flag,
                                           WaitLimit* limit = nullptr) {
  using Payload = typename PacketType::Payload;
  const auto* const packets = static_cast<const PacketType*>(originPtr);
  auto* const target = static_cast<char*>(targetPtr);
  const uint64_t whole = (targetBytes + sizeof(Payload) - 1) / sizeof(Payload);
  for (uint64_t i = threadId; i < whole; i += numThreads) {
    const Payload payload = packets[i].read(flag, -1, limit);
    const uint64_t left = targetBytes - i * sizeof(Payload);
    detail::copyPayload(target + i * sizeof(Payload), &payload, left, sizeof(Payload));
  }
}

}  // namespace mscclpp
