#pragma once

#include <mscclpp/poll_device.hpp>

namespace mscclpp {

/// A counter that the peer's proxy raises, and what this end has waited for of it. One thread at a
/// time waits.
struct Host2DeviceSemaphoreDeviceHandle {
  /// Whether there is a signal that was not waited for; if so, it has been now.
  MSCCLPP_DEVICE_INLINE bool poll() {
    const uint64_t expected = loadRelaxedSystem(expectedInboundToken) + 1;
    if (loadAcquireSystem(inboundToken) < expected) return false;
    storeRelaxedSystem(expectedInboundToken, expected);
    return true;
  }

  /// Waits for one more signal. What its sender wrote before is visible then.
  MSCCLPP_DEVICE_INLINE void wait(int64_t maxSpinCount = -1) {
    const uint64_t expected = loadRelaxedSystem(expectedInboundToken) + 1;
    storeRelaxedSystem(expectedInboundToken, expected);
    waitUntil([&] { return loadAcquireSystem(inboundToken) >= expected; }, limit, maxSpinCount);
  }

  uint64_t* inboundToken;
  uint64_t* expectedInboundToken;
  WaitLimit* limit;
};

/// Two counters, one at each end, that threads of the other end raise. One thread at a time waits.
struct MemoryDevice2DeviceSemaphoreDeviceHandle {
  MSCCLPP_DEVICE_INLINE bool poll() {
    const uint64_t expected = loadRelaxedSystem(expectedInboundToken) + 1;
    if (loadAcquireSystem(inboundToken) < expected) return false;
    storeRelaxedSystem(expectedInboundToken, expected);
    return true;
  }

  /// Waits for one more signal. What its sender wrote before is visible then.
  MSCCLPP_DEVICE_INLINE void wait(int64_t maxSpinCount = -1) {
    const uint64_t expected = expect();
    waitUntil([&] { return loadAcquireSystem(inboundToken) >= expected; }, limit, maxSpinCount);
  }

  /// The same, without a promise about what the sender wrote before.
  MSCCLPP_DEVICE_INLINE void relaxedWait(int64_t maxSpinCount = -1) {
    const uint64_t expected = expect();
    waitUntil([&] { return loadRelaxedSystem(inboundToken) >= expected; }, limit, maxSpinCount);
  }

  /// Counts one signal at the peer. What this thread has written, or has seen through a barrier of
  /// its block, is visible to who waits for it.
  MSCCLPP_DEVICE_INLINE void signal() { addReleaseSystem(remoteInboundToken, 1); }

  MSCCLPP_DEVICE_INLINE void relaxedSignal() { addRelaxedSystem(remoteInboundToken, 1); }

  uint64_t* inboundToken;
  uint64_t* remoteInboundToken;
  uint64_t* expectedInboundToken;
  WaitLimit* limit;

 private:
  MSCCLPP_DEVICE_INLINE uint64_t expect() {
    const uint64_t expected = loadRelaxedSystem(expectedInboundToken) + 1;
    storeRelaxedSystem(expectedInboundToken, expected);
    return expected;
  }
};

}  // namespace mscclpp
