#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <comms/torchcomms/TorchWork.hpp>
#include <functional>
#include <optional>
#include <thread>

namespace torch::comms::stream {

/// What a blocked thread does between two looks: sleeps, for longer each time, and lets the signals
/// of the host language through. Under HostWait.
class Pauses {
 public:
  Pauses(std::chrono::microseconds first, std::chrono::microseconds last)
      : pause_(first), last_(last) {}

  /// May throw (Ctrl-C).
  void rest() {
    const auto now = std::chrono::steady_clock::now();
    if (now >= signals_) {
      HostWait::checkInterrupts();
      signals_ = now + kSignalInterval;
    }
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(2 * pause_, last_);
  }

 private:
  static constexpr std::chrono::milliseconds kSignalInterval{50};

  std::chrono::microseconds pause_;
  const std::chrono::microseconds last_;
  std::chrono::steady_clock::time_point signals_ =
      std::chrono::steady_clock::now() + kSignalInterval;
};

/// Calls `then` as soon as `holds` does: at once, or on a thread of its own.
void whenHolds(std::function<bool()> holds, TorchWork::Hook then);
/// Blocks under HostWait until `holds` does, at most so long; whether it does.
bool waitUntil(const std::function<bool()>& holds, std::optional<std::chrono::milliseconds> limit);

/// Counts itself while it lives.
class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
};

}  // namespace torch::comms::stream
