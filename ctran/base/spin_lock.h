#pragma once

#include <atomic>
#include <thread>

#include "ctran/base/clock.h"

namespace ctran {

/// A lock for a few stores. To take it costs one atomic operation and to release it none, half of
/// what a mutex costs. A thread that waits for a holder which has lost its core gives away its own.
class SpinLock {
 public:
  void lock() {
    while (isHeld_.exchange(true, std::memory_order_acquire)) {
      for (int looks = 0; isHeld_.load(std::memory_order_relaxed); ++looks) {
        looks < kLooks ? relax() : std::this_thread::yield();
      }
    }
  }
  void unlock() { isHeld_.store(false, std::memory_order_release); }

 private:
  static constexpr int kLooks = 100;
  std::atomic<bool> isHeld_{false};
};

}  // namespace ctran
