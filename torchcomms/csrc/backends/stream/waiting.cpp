#include "torchcomms/csrc/backends/stream/waiting.hpp"

#include <thread>

#include "ctran/stream/watchdog.h"

namespace torch::comms::stream {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kPause{100};

}  // namespace

void whenHolds(std::function<bool()> holds, TorchWork::Hook then) {
  if (holds()) return then();
  ctran::Watchdog::spawn("when-it-ends", [holds = std::move(holds), then = std::move(then)] {
    while (!holds()) std::this_thread::sleep_for(kPause);
    then();
  });
}

bool waitUntil(const std::function<bool()>& holds, std::optional<std::chrono::milliseconds> limit) {
  const auto until = limit ? Clock::now() + *limit : Clock::time_point::max();
  const HostWait wait;
  while (!holds()) {
    if (Clock::now() >= until) return false;
    HostWait::checkInterrupts();
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

}  // namespace torch::comms::stream
