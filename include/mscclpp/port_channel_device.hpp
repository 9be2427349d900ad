#pragma once

#include <mscclpp/fifo_device.hpp>
#include <mscclpp/semaphore_device.hpp>

namespace mscclpp {

using SemaphoreId = uint32_t;
using MemoryId = uint32_t;

using TriggerType = uint64_t;
inline constexpr TriggerType TriggerData = 0x1;  ///< copy
inline constexpr TriggerType TriggerFlag = 0x2;  ///< signal
inline constexpr TriggerType TriggerSync = 0x4;  ///< wait until all before has left

/// A request to a ProxyService. Sizes and offsets have 64 bits.
struct ChannelTrigger {
  MSCCLPP_HOST_DEVICE_INLINE ChannelTrigger(TriggerType type, MemoryId dst, uint64_t dstOffset,
                                            MemoryId src, uint64_t srcOffset, uint64_t bytes,
                                            SemaphoreId semaphore)
      : type(type),
        dst(dst),
        src(src),
        semaphore(semaphore),
        dstOffset(dstOffset),
        srcOffset(srcOffset),
        bytes(bytes) {}

  MSCCLPP_HOST_DEVICE_INLINE explicit ChannelTrigger(const ProxyTrigger& packed)
      : type(packed.fth >> 60),
        dst(static_cast<MemoryId>(packed.fth & kIdMask)),
        src(static_cast<MemoryId>(packed.fth >> 20 & kIdMask)),
        semaphore(static_cast<SemaphoreId>(packed.fth >> 40 & kIdMask)),
        dstOffset(packed.fst),
        srcOffset(packed.snd),
        bytes(packed.trd) {}

  MSCCLPP_HOST_DEVICE_INLINE ProxyTrigger packed() const {
    ProxyTrigger trigger;
    trigger.fst = dstOffset;
    trigger.snd = srcOffset;
    trigger.trd = bytes;
    trigger.fth = type << 60 | static_cast<uint64_t>(semaphore) << 40 |
                  static_cast<uint64_t>(src) << 20 | static_cast<uint64_t>(dst);
    return trigger;
  }

  static constexpr uint64_t kIdMask = (1 << 20) - 1;  ///< ids have 20 bits

  TriggerType type;
  MemoryId dst;
  MemoryId src;
  SemaphoreId semaphore;
  uint64_t dstOffset;
  uint64_t srcOffset;
  uint64_t bytes;
};

/// A thread asks, and the proxy, which is a thread of the host, moves the data. One thread per
/// channel is enough for all of it. Offsets and sizes are in bytes.
struct BasePortChannelDeviceHandle {
  MSCCLPP_DEVICE_INLINE void put(MemoryId dst, uint64_t dstOffset, MemoryId src, uint64_t srcOffset,
                                 uint64_t size) {
    push(TriggerData, dst, dstOffset, src, srcOffset, size);
  }
  MSCCLPP_DEVICE_INLINE void put(MemoryId dst, MemoryId src, uint64_t offset, uint64_t size) {
    put(dst, offset, src, offset, size);
  }

  /// Counts one signal at the peer, where all that was put before is visible then.
  MSCCLPP_DEVICE_INLINE void signal() { push(TriggerFlag, 0, 0, 0, 0, 0); }

  MSCCLPP_DEVICE_INLINE void putWithSignal(MemoryId dst, uint64_t dstOffset, MemoryId src,
                                           uint64_t srcOffset, uint64_t size) {
    push(TriggerData | TriggerFlag, dst, dstOffset, src, srcOffset, size);
  }
  MSCCLPP_DEVICE_INLINE void putWithSignal(MemoryId dst, MemoryId src, uint64_t offset,
                                           uint64_t size) {
    putWithSignal(dst, offset, src, offset, size);
  }

  /// Returns when the source may be written again.
  MSCCLPP_DEVICE_INLINE void putWithSignalAndFlush(MemoryId dst, uint64_t dstOffset, MemoryId src,
                                                   uint64_t srcOffset, uint64_t size,
                                                   int64_t maxSpinCount = -1) {
    fifo_.sync(push(TriggerData | TriggerFlag | TriggerSync, dst, dstOffset, src, srcOffset, size),
               maxSpinCount);
  }
  MSCCLPP_DEVICE_INLINE void putWithSignalAndFlush(MemoryId dst, MemoryId src, uint64_t offset,
                                                   uint64_t size, int64_t maxSpinCount = -1) {
    putWithSignalAndFlush(dst, offset, src, offset, size, maxSpinCount);
  }

  /// Returns when the sources of all that was put before may be written again.
  MSCCLPP_DEVICE_INLINE void flush(int64_t maxSpinCount = -1) {
    fifo_.sync(push(TriggerSync, 0, 0, 0, 0, 0), maxSpinCount);
  }

  MSCCLPP_DEVICE_INLINE bool poll() { return semaphore_.poll(); }
  /// Waits for one more signal of the peer.
  MSCCLPP_DEVICE_INLINE void wait(int64_t maxSpinCount = -1) { semaphore_.wait(maxSpinCount); }

  MSCCLPP_DEVICE_INLINE uint64_t push(TriggerType type, MemoryId dst, uint64_t dstOffset,
                                      MemoryId src, uint64_t srcOffset, uint64_t size) {
    return fifo_.push(
        ChannelTrigger(type, dst, dstOffset, src, srcOffset, size, semaphoreId_).packed());
  }

  SemaphoreId semaphoreId_;
  Host2DeviceSemaphoreDeviceHandle semaphore_;
  FifoDeviceHandle fifo_;
};

/// The same, between two memories that are known.
struct PortChannelDeviceHandle : BasePortChannelDeviceHandle {
  MSCCLPP_DEVICE_INLINE void put(uint64_t dstOffset, uint64_t srcOffset, uint64_t size) {
    BasePortChannelDeviceHandle::put(dst_, dstOffset, src_, srcOffset, size);
  }
  MSCCLPP_DEVICE_INLINE void put(uint64_t offset, uint64_t size) { put(offset, offset, size); }
  MSCCLPP_DEVICE_INLINE void putWithSignal(uint64_t dstOffset, uint64_t srcOffset, uint64_t size) {
    BasePortChannelDeviceHandle::putWithSignal(dst_, dstOffset, src_, srcOffset, size);
  }
  MSCCLPP_DEVICE_INLINE void putWithSignal(uint64_t offset, uint64_t size) {
    putWithSignal(offset, offset, size);
  }
  MSCCLPP_DEVICE_INLINE void putWithSignalAndFlush(uint64_t dstOffset, uint64_t srcOffset,
                                                   uint64_t size) {
    BasePortChannelDeviceHandle::putWithSignalAndFlush(dst_, dstOffset, src_, srcOffset, size);
  }
  MSCCLPP_DEVICE_INLINE void putWithSignalAndFlush(uint64_t offset, uint64_t size) {
    putWithSignalAndFlush(offset, offset, size);
  }

  MemoryId dst_;
  MemoryId src_;
};

}  // namespace mscclpp
