#include "torchcomms/csrc/backends/stream/watchdog.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "ctran/os/process.h"
#include "torchcomms/csrc/backends/stream/group.hpp"

namespace torch::comms::stream {

namespace {

using std::chrono::milliseconds;

/// How long retire() waits for threads to finish what they are at.
constexpr std::chrono::seconds kRetirement{2};
constexpr milliseconds kLongest{1000};

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::weak_ptr<StreamGroup>> groups;
  std::vector<std::shared_ptr<void>> buried;
  bool runs = false;
  int spawned = 0;  ///< threads of spawn()
  bool retired = false;
  std::atomic<bool> sleeps{false};

  void serve();
};

/// Never destroyed: the thread, and graphs, may outlive the static objects. A forked child has no
/// such thread: it begins anew.
std::atomic<State*> gState{new State};
[[maybe_unused]] const int gAtFork = pthread_atfork(nullptr, nullptr, [] { gState = new State; });

State& state() { return *gState; }

void State::serve() {
  std::unique_lock lock(mutex);
  while (!retired) {
    std::vector<std::shared_ptr<StreamGroup>> present;
    for (const auto& group : groups) {
      if (auto one = group.lock()) present.push_back(std::move(one));
    }
    std::vector<std::shared_ptr<void>> dead;
    dead.swap(buried);
    lock.unlock();
    dead.clear();
    milliseconds pause = kLongest;
    milliseconds longest = kLongest;
    bool idle = true;
    for (const auto& group : present) {
      idle = group->patrol() && idle;
      pause = std::min(pause, group->checkInterval());
      longest = std::min(longest, group->idleInterval());
    }
    present.clear();  // perhaps the last to know them: without the lock
    lock.lock();
    std::erase_if(groups, [](const auto& group) { return group.expired(); });
    const auto wanted = [&] { return retired || !buried.empty() || !sleeps; };
    if (idle) {
      // Whoever issues an operation says so only to a thread that sleeps; one that has been issued
      // since we looked is seen a little later.
      sleeps = true;
      changed.wait_for(lock, longest, wanted);
      sleeps = false;
    } else {
      changed.wait_for(lock, pause, [&] { return retired || !buried.empty(); });
    }
  }
  runs = false;
  changed.notify_all();
}

}  // namespace

void Watchdog::add(const std::shared_ptr<StreamGroup>& group) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.groups.push_back(group);
  if (s.runs || s.retired) return;
  ctran::startThread("torchcomms-gpu", [&s] { s.serve(); });
  s.runs = true;
}

void Watchdog::poke() {
  State& s = state();
  if (!s.sleeps.exchange(false)) return;
  const std::lock_guard lock(s.mutex);
  s.changed.notify_all();
}

void Watchdog::bury(std::shared_ptr<void> held) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.buried.push_back(std::move(held));
  s.changed.notify_all();
}

void Watchdog::spawn(const char* name, std::function<void()> body) {
  State& s = state();
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
    ctran::startThread(name, [body = std::move(body), ended]() mutable {
      body();
      body = nullptr;  // what it holds goes before it counts as ended
      ended();
    });
  } catch (...) {
    ended();
    throw;
  }
}

void Watchdog::retire() {
  State& s = state();
  std::unique_lock lock(s.mutex);
  s.retired = true;
  s.changed.notify_all();
  s.changed.wait_for(lock, kRetirement, [&] { return !s.runs && s.spawned == 0; });
}

bool Watchdog::isRetired() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.retired;
}

}  // namespace torch::comms::stream
