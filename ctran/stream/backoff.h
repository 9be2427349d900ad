#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "ctran/base/work.h"

namespace ctran {

/// How a blocked thread waits between two looks at a condition: it sleeps, twice as long each time
/// up to a limit, and tells its host language about twenty times a second (WaitHooks::interrupted).
class Backoff {
 public:
  Backoff(std::chrono::microseconds first, std::chrono::microseconds longest, WaitHooks* hooks)
      : pause_(first), longest_(longest), hooks_(hooks) {}

  /// Throws what the hooks throw; that ends the wait.
  void pause() {
    const auto now = Clock::now();
    if (hooks_ != nullptr && now >= nextInterrupt_) {
      hooks_->interrupted();
      nextInterrupt_ = now + kInterruptInterval;
    }
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(2 * pause_, longest_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kInterruptInterval{50};

  std::chrono::microseconds pause_;
  const std::chrono::microseconds longest_;
  WaitHooks* const hooks_;
  Clock::time_point nextInterrupt_ = Clock::now() + kInterruptInterval;
};

}  // namespace ctran
