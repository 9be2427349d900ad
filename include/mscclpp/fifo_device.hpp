#pragma once

#include <mscclpp/poll_device.hpp>

namespace mscclpp {

/// What threads ask of a proxy. What the words mean is between them and its handler.
struct ProxyTrigger {
  uint64_t fst = 0;
  uint64_t snd = 0;
  uint64_t trd = 0;
  uint64_t fth = 0;
};

/// A place of a FIFO. `number` is set last: it is 1 more than how many triggers were pushed before.
struct FifoSlot {
  ProxyTrigger trigger;
  uint64_t number = 0;
  uint64_t unused[3] = {};
};

/// The side of a FIFO that pushes: any thread of any block.
struct FifoDeviceHandle {
  /// Waits for a place and puts `trigger` there. Returns how many were pushed before.
  MSCCLPP_DEVICE_INLINE uint64_t push(const ProxyTrigger& trigger, int64_t maxSpinCount = -1) {
    uint64_t before = 0;
    // A place is taken when it is free, so that who gives up leaves none behind that stays empty.
    const auto isTaken = [&] {
      before = loadRelaxedSystem(head);
      return before < loadAcquireSystem(tail) + static_cast<uint64_t>(size) &&
             compareSwapRelaxedDevice(head, before, before + 1);
    };
    if (!waitUntil(isTaken, limit, maxSpinCount)) return before;
    FifoSlot& slot = slots[before % static_cast<uint64_t>(size)];
    slot.trigger = trigger;
    storeReleaseSystem(&slot.number, before + 1);
    return before;
  }

  /// Whether the trigger that `push` returned `pushed` for has been handled.
  MSCCLPP_DEVICE_INLINE bool poll(uint64_t pushed) const {
    return loadAcquireSystem(tail) > pushed;
  }

  /// Waits until it has been.
  MSCCLPP_DEVICE_INLINE void sync(uint64_t pushed, int64_t maxSpinCount = -1) {
    waitUntil([&] { return poll(pushed); }, limit, maxSpinCount);
  }

  FifoSlot* slots;
  uint64_t* head;  ///< how many were pushed; of the threads that push
  uint64_t* tail;  ///< how many were handled; the proxy writes it
  int size;
  WaitLimit* limit;
};

}  // namespace mscclpp
