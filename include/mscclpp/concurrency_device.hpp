#pragma once

#include <mscclpp/poll_device.hpp>

namespace mscclpp {

/// A barrier of blocks that all run at the same time. It starts as zeros, and needs no reset.
struct DeviceSyncer {
 public:
  /// All threads of `blockNum` blocks call it.
  MSCCLPP_DEVICE_INLINE void sync(int blockNum, int64_t maxSpinCount = -1) {
    __syncthreads();
    if (blockNum > 1 && threadIdx.x == 0) {
      // The last to come begins the next round; the others wait for it.
      const uint32_t round = loadAcquireDevice(&round_);
      if (fetchAddAcqRelDevice(&arrived_, 1) + 1 == static_cast<uint32_t>(blockNum)) {
        fetchAddAcqRelDevice(&arrived_, 0U - static_cast<uint32_t>(blockNum));
        fetchAddAcqRelDevice(&round_, 1);
      } else {
        waitUntil([&] { return loadAcquireDevice(&round_) != round; }, limit_, maxSpinCount);
      }
    }
    __syncthreads();
  }

  WaitLimit* limit_ = nullptr;  ///< what ends the wait; null: see WaitLimit

 private:
  uint32_t arrived_ = 0;
  uint32_t round_ = 0;
};

/// A counting semaphore of the threads of one GPU. One thread per block calls it.
struct DeviceSemaphore {
 public:
  MSCCLPP_DEVICE_INLINE void set(uint32_t value) {
    while (!compareSwapAcqRelDevice(&count_, loadAcquireDevice(&count_), value)) {
    }
  }
  /// Waits until the count is positive, and takes one.
  MSCCLPP_DEVICE_INLINE void acquire(int64_t maxSpinCount = -1) {
    const auto taken = [&] {
      const uint32_t count = loadAcquireDevice(&count_);
      return count > 0 && compareSwapAcqRelDevice(&count_, count, count - 1);
    };
    waitUntil(taken, limit_, maxSpinCount);
  }
  MSCCLPP_DEVICE_INLINE void release() { fetchAddAcqRelDevice(&count_, 1); }

  WaitLimit* limit_ = nullptr;

 private:
  uint32_t count_ = 0;
};

}  // namespace mscclpp
