#include "ctran/stream/watchdog.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "ctran/gpu/discard.h"
#include "ctran/os/process.h"
#include "ctran/stream/stream_queue.h"

namespace ctran {

namespace {

using std::chrono::milliseconds;

/// How long stop() waits for threads to end.
constexpr std::chrono::seconds kStopPatience{2};
constexpr milliseconds kLongestSleep{1000};

struct WatchdogState {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::weak_ptr<StreamQueue>> queues;
  std::vector<std::shared_ptr<void>> released;
  bool runs = false;
  int spawned = 0;  ///< threads of spawn()
  bool stopped = false;
  std::atomic<bool> sleeps{false};

  /// Returns the queues that still exist. Their owner must not hold the lock when it lets them go:
  /// it may be the last.
  std::vector<std::shared_ptr<StreamQueue>> present() const;
  bool isIdle();
  void serve();
};

/// Never destroyed: the thread, and graphs, may outlive the static objects. A forked child has no
/// such thread: it begins anew.
std::atomic<WatchdogState*> gWatchdogState{new WatchdogState};
[[maybe_unused]] const int gWatchdogAtFork =
    pthread_atfork(nullptr, nullptr, [] { gWatchdogState = new WatchdogState; });

WatchdogState& watchdogState() { return *gWatchdogState; }

std::vector<std::shared_ptr<StreamQueue>> WatchdogState::present() const {
  std::vector<std::shared_ptr<StreamQueue>> present;
  for (const auto& queue : queues) {
    if (auto one = queue.lock()) present.push_back(std::move(one));
  }
  return present;
}

bool WatchdogState::isIdle() {
  std::unique_lock lock(mutex);
  const std::vector<std::shared_ptr<StreamQueue>> all = present();
  lock.unlock();
  return std::all_of(all.begin(), all.end(), [](const auto& one) { return one->isIdle(); });
}

void WatchdogState::serve() {
  std::unique_lock lock(mutex);
  while (!stopped) {
    std::vector<std::shared_ptr<StreamQueue>> inspected = present();
    std::vector<std::shared_ptr<void>> garbage;
    garbage.swap(released);
    lock.unlock();
    garbage.clear();
    milliseconds pause = kLongestSleep;
    milliseconds longest = kLongestSleep;
    bool idle = true;
    for (const auto& queue : inspected) {
      queue->lookAtPrograms();
      idle = queue->inspect() && !queue->hasPrograms() && idle;
      pause = std::min(pause, queue->checkInterval());
      longest = std::min(longest, queue->idleInterval());
    }
    inspected.clear();
    // A thread may have enqueued an operation since it was inspected.
    if (idle) gpu::freeDiscarded();
    lock.lock();
    std::erase_if(queues, [](const auto& queue) { return queue.expired(); });
    const auto wanted = [&] { return stopped || !released.empty() || !sleeps; };
    if (idle) {
      // `poke` looks at `sleeps` without the lock, so that enqueueing costs no lock. An operation
      // that was enqueued after `inspect` and before this is seen after `longest`.
      sleeps = true;
      changed.wait_for(lock, longest, wanted);
      sleeps = false;
    } else {
      changed.wait_for(lock, pause, [&] { return stopped || !released.empty(); });
    }
  }
  runs = false;
  changed.notify_all();
}

}  // namespace

void Watchdog::add(const std::shared_ptr<StreamQueue>& queue) {
  WatchdogState& s = watchdogState();
  const std::lock_guard lock(s.mutex);
  s.queues.push_back(queue);
  if (s.runs || s.stopped) return;
  // The driver may not be asked once it has taken itself down, which it does at exit.
  [[maybe_unused]] static const int atExit = std::atexit(&Watchdog::stop);
  startThread("ctran-watchdog", [&s] { s.serve(); });
  gpu::deferDiscarding([] { return watchdogState().isIdle(); });
  s.runs = true;
}

void Watchdog::poke() {
  WatchdogState& s = watchdogState();
  if (!s.sleeps.exchange(false)) return;
  const std::lock_guard lock(s.mutex);
  s.changed.notify_all();
}

void Watchdog::release(std::shared_ptr<void> value) {
  WatchdogState& s = watchdogState();
  const std::lock_guard lock(s.mutex);
  s.released.push_back(std::move(value));
  s.changed.notify_all();
}

void Watchdog::spawn(const char* name, std::function<void()> body) {
  WatchdogState& s = watchdogState();
  {
    const std::lock_guard lock(s.mutex);
    ++s.spawned;
  }
  const auto ended = [&s] {
    const std::lock_guard lock(s.mutex);
    --s.spawned;
    s.changed.notify_all();
  };
  try {
    startThread(name, [body = std::move(body), ended]() mutable {
      body();
      body = nullptr;  // what it owns goes before it counts as ended
      ended();
    });
  } catch (...) {
    ended();
    throw;
  }
}

void Watchdog::stop() {
  WatchdogState& s = watchdogState();
  std::unique_lock lock(s.mutex);
  if (std::exchange(s.stopped, true)) return;
  s.changed.notify_all();
  s.changed.wait_for(lock, kStopPatience, [&] { return !s.runs && s.spawned == 0; });
}

bool Watchdog::isStopped() {
  WatchdogState& s = watchdogState();
  const std::lock_guard lock(s.mutex);
  return s.stopped;
}

}  // namespace ctran
