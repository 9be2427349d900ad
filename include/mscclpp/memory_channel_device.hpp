#pragma once

#include <mscclpp/copy_device.hpp>
#include <mscclpp/semaphore_device.hpp>

namespace mscclpp {

/// Signals between threads of two ranks.
struct BaseMemoryChannelDeviceHandle {
  MSCCLPP_DEVICE_INLINE void signal() { semaphore_.signal(); }
  MSCCLPP_DEVICE_INLINE void relaxedSignal() { semaphore_.relaxedSignal(); }
  MSCCLPP_DEVICE_INLINE bool poll() { return semaphore_.poll(); }
  MSCCLPP_DEVICE_INLINE void wait(int64_t maxSpinCount = -1) { semaphore_.wait(maxSpinCount); }
  MSCCLPP_DEVICE_INLINE void relaxedWait(int64_t maxSpinCount = -1) {
    semaphore_.relaxedWait(maxSpinCount);
  }

  MemoryDevice2DeviceSemaphoreDeviceHandle semaphore_;
};

/// The same, and copies by threads: `dst_` is memory of the peer, `src_` and `packetBuffer_` are of
/// this rank. Offsets and sizes are in bytes. `numThreads` threads call a copy together, each with
/// a `threadId` of its own.
struct MemoryChannelDeviceHandle : BaseMemoryChannelDeviceHandle {
  /// Element `index` of the peer's memory.
  template <class T>
  MSCCLPP_DEVICE_INLINE T read(uint64_t index) const {
    return static_cast<const T*>(dst_)[index];
  }
  template <class T>
  MSCCLPP_DEVICE_INLINE void write(uint64_t index, const T& value) {
    static_cast<T*>(dst_)[index] = value;
  }

  template <int Alignment = 16, bool CopyRemainder = true>
  MSCCLPP_DEVICE_INLINE void put(uint64_t targetOffset, uint64_t originOffset, uint64_t originBytes,
                                 uint32_t threadId, uint32_t numThreads) {
    copy<Alignment, CopyRemainder>(static_cast<char*>(dst_) + targetOffset,
                                   static_cast<char*>(src_) + originOffset, originBytes, threadId,
                                   numThreads);
  }
  template <int Alignment = 16, bool CopyRemainder = true>
  MSCCLPP_DEVICE_INLINE void put(uint64_t offset, uint64_t originBytes, uint32_t threadId,
                                 uint32_t numThreads) {
    put<Alignment, CopyRemainder>(offset, offset, originBytes, threadId, numThreads);
  }

  /// From the peer's memory, at `targetOffset`, to this rank's, at `originOffset`.
  template <int Alignment = 16, bool CopyRemainder = true>
  MSCCLPP_DEVICE_INLINE void get(uint64_t targetOffset, uint64_t originOffset, uint64_t originBytes,
                                 uint32_t threadId, uint32_t numThreads) {
    copy<Alignment, CopyRemainder>(static_cast<char*>(src_) + originOffset,
                                   static_cast<char*>(dst_) + targetOffset, originBytes, threadId,
                                   numThreads);
  }
  template <int Alignment = 16, bool CopyRemainder = true>
  MSCCLPP_DEVICE_INLINE void get(uint64_t offset, uint64_t originBytes, uint32_t threadId,
                                 uint32_t numThreads) {
    get<Alignment, CopyRemainder>(offset, offset, originBytes, threadId, numThreads);
  }

  /// Writes this rank's bytes as packets, which take twice as many bytes, to the peer's memory.
  template <class PacketType = LL16Packet>
  MSCCLPP_DEVICE_INLINE void putPackets(uint64_t targetOffset, uint64_t originOffset,
                                        uint64_t originBytes, uint32_t threadId,
                                        uint32_t numThreads, uint32_t flag) {
    copyToPackets<PacketType>(static_cast<char*>(dst_) + targetOffset,
                              static_cast<const char*>(src_) + originOffset, originBytes, threadId,
                              numThreads, flag);
  }

  /// Waits for packets in the packet buffer, at `targetOffset`, and writes what they bring to this
  /// rank's memory, at `originOffset`.
  template <class PacketType = LL16Packet>
  MSCCLPP_DEVICE_INLINE void unpackPackets(uint64_t targetOffset, uint64_t originOffset,
                                           uint64_t originBytes, uint32_t threadId,
                                           uint32_t numThreads, uint32_t flag) {
    copyFromPackets<PacketType>(static_cast<char*>(src_) + originOffset,
                                static_cast<const char*>(packetBuffer_) + targetOffset, originBytes,
                                threadId, numThreads, flag, semaphore_.limit);
  }

  /// Waits for packet `index` of the packet buffer.
  template <class PacketType = LL16Packet>
  MSCCLPP_DEVICE_INLINE auto unpackPacket(uint64_t index, uint32_t flag,
                                          int64_t maxSpinCount = -1) const {
    const auto* const packets = static_cast<const PacketType*>(packetBuffer_);
    return packets[index].read(flag, maxSpinCount, semaphore_.limit);
  }

  void* dst_;
  void* src_;
  void* packetBuffer_;
};

}  // namespace mscclpp
