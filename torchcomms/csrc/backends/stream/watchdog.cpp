#include "torchcomms/csrc/backends/stream/watchdog.hpp"

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

/// How long retire() waits for the thread to finish what it is at.
constexpr std::chrono::seconds kRetirement{2};
constexpr milliseconds kLongest{1000};

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::weak_ptr<StreamGroup>> groups;
  std::vector<std::shared_ptr<void>> buried;
  bool runs = false;
  bool retired = false;
  std::atomic<bool> sleeps{false};

  void serve();
};

/// Never destroyed: the thread, and graphs, may outlive the static objects.
State& state() {
  static State& made = *new State;
  return made;
}

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
    bool idle = true;
    for (const auto& group : present) {
      group->patrol();
      idle = idle && group->mayRest();
      pause = std::min(pause, group->checkInterval());
    }
    present.clear();  // perhaps the last to know them: without the lock
    lock.lock();
    std::erase_if(groups, [](const auto& group) { return group.expired(); });
    const auto wanted = [&] { return retired || !buried.empty() || !sleeps; };
    if (idle) {
      // Whoever issues an operation says so only to a thread that sleeps; one that has been issued
      // since we looked is seen a little later.
      sleeps = true;
      changed.wait_for(lock, kLongest, wanted);
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

void Watchdog::retire() {
  State& s = state();
  std::unique_lock lock(s.mutex);
  s.retired = true;
  s.changed.notify_all();
  s.changed.wait_for(lock, kRetirement, [&] { return !s.runs; });
}

}  // namespace torch::comms::stream
