#include "torchcomms/csrc/backends/stream/waiting.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

#include "ctran/stream/watchdog.h"

namespace torch::comms::stream {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kPause{100};
constexpr std::chrono::microseconds kLongestPause{1000};

/// What is waited for by one thread, which runs as long as there is something.
struct Awaited {
  struct One {
    std::function<bool()> holds;
    TorchWork::Hook then;
  };
  std::mutex mutex;
  std::vector<One> added;
  bool runs = false;

  void serve() {
    std::vector<One> all;
    auto pause = kPause;
    while (true) {
      {
        const std::lock_guard lock(mutex);
        std::move(added.begin(), added.end(), std::back_inserter(all));
        added.clear();
        if (all.empty()) {
          runs = false;
          return;
        }
      }
      const size_t before = all.size();
      std::erase_if(all, [](const One& one) {
        if (!one.holds()) return false;
        one.then();
        return true;
      });
      pause = all.size() < before ? kPause : std::min(2 * pause, kLongestPause);
      if (!all.empty()) std::this_thread::sleep_for(pause);
    }
  }
};

/// Never destroyed: the thread may outlive the static objects. A forked child has no such thread.
std::atomic<Awaited*> gAwaited{new Awaited};
[[maybe_unused]] const int gAtFork =
    pthread_atfork(nullptr, nullptr, [] { gAwaited = new Awaited; });

}  // namespace

void whenHolds(std::function<bool()> holds, TorchWork::Hook then) {
  if (holds()) return then();
  Awaited& awaited = *gAwaited;
  const std::lock_guard lock(awaited.mutex);
  awaited.added.push_back({std::move(holds), std::move(then)});
  if (awaited.runs) return;
  try {
    ctran::Watchdog::spawn("when-it-ends", [&awaited] { awaited.serve(); });
  } catch (...) {
    awaited.added.pop_back();
    throw;
  }
  awaited.runs = true;
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
