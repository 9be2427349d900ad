#pragma once

#include <mscclpp/atomic_device.hpp>
#include <mscclpp/wait_limit.hpp>

namespace mscclpp {

/// Spins until `done()`, or until the limit ends the wait: see WaitLimit. Whether it is done.
/// `maxSpinCount` ends it too, after so many spins; -1: does not.
template <class Done>
MSCCLPP_DEVICE_INLINE bool waitUntil(const Done& done, WaitLimit* limit,
                                     int64_t maxSpinCount = -1) {
#if defined(MSCCLPP_DEVICE_CUDA)
  uint64_t began = 0;
  for (int64_t spins = 1; !done(); ++spins) {
    if (maxSpinCount >= 0 && spins > maxSpinCount) {
      if (limit != nullptr) storeRelaxedSystem(&limit->failed, 1);
      return false;
    }
    // A look at the clock and at the host's memory takes longer than many spins.
    if (spins % 4096 != 0) continue;
    if (limit != nullptr && loadRelaxedSystem(&limit->failed) != 0) return done();
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (began == 0) began = now;
    const uint64_t most = limit != nullptr ? static_cast<uint64_t>(limit->timeoutNanos)
                                           : uint64_t{MSCCLPP_WAIT_SECONDS} * 1'000'000'000;
    if (most == 0 || now - began <= most) continue;
    if (limit == nullptr) __trap();
    storeRelaxedSystem(&limit->failed, 1);
    return false;
  }
#else
  host::Waiting waiting(limit);
  for (int64_t spins = 0; !done(); ++spins) {
    if (maxSpinCount >= 0 && spins > maxSpinCount) waiting.giveUp(spins);
    waiting.pause();
  }
#endif
  return true;
}

}  // namespace mscclpp
