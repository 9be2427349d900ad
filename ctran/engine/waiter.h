#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "ctran/base/clock.h"
#include "ctran/base/work.h"
#include "ctran/engine/core.h"

namespace ctran {

/// How a thread waits. It looks again and again, at first without even reading the clock. After
/// about two microseconds it tells the host language that it blocks. Then it spins and yields for
/// as long as the communicator's Core says, and then sleeps between looks.
class Waiter {
 public:
  Waiter(Core& core, WaitHooks* hooks) : core_(core), hooks_(hooks) {}
  ~Waiter() {
    if (blocked_) hooks_->afterBlocking();
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  /// Is called after a look that found nothing. `awaited`: the rank that has to move, or -1.
  /// `stillWaiting()` returns, right before the thread sleeps, whether it still waits for that
  /// rank. `stuck(now)` is called before each sleep, throws if waiting is useless, and returns the
  /// latest time to wake up.
  template <class StillWaiting, class Stuck>
  void pause(int awaited, StillWaiting stillWaiting, Stuck stuck) {
    constexpr int kLooksPerClock = 64;  // about a microsecond
    // While data flows there is no need to look at the clock each time.
    if (core_.poll() && ++polls_ % kLooksPerClock != 0) return;
    if (++looks_ % kLooksPerClock != 0 && !slow_) return relax();
    if (looks_ == kLooksPerClock) return;
    core_.throwIfFailed();
    const int64_t now = nowNanos();
    if (start_ == 0) {
      start_ = lastTick_ = now;
      if (hooks_ != nullptr) {
        hooks_->beforeBlocking();
        blocked_ = true;
      }
    }
    const int64_t waited = now - start_;
    if (waited < core_.spinNanos) return relax();
    slow_ = true;
    if (waited < core_.spinNanos + core_.yieldNanos) {
      ::sched_yield();
      return;
    }
    const int64_t wakeUp = std::min(stuck(now), now + kTick);
    const bool signalled =
        core_.sleep(awaited, std::chrono::nanoseconds(std::max<int64_t>(wakeUp - now, 0)),
                    [&] { return stillWaiting() && !core_.failed(); });
    if (hooks_ != nullptr && (signalled || now - lastTick_ >= kTick / 2)) {
      lastTick_ = now;
      hooks_->interrupted();
    }
  }

 private:
  static constexpr int64_t kTick = 100'000'000;

  Core& core_;
  WaitHooks* hooks_;
  uint64_t looks_ = 0;
  uint64_t polls_ = 0;
  int64_t start_ = 0;
  int64_t lastTick_ = 0;
  bool blocked_ = false;
  bool slow_ = false;
};

}  // namespace ctran
