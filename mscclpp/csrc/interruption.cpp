#include "interruption.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "service_thread.h"
#include "wait_limits.h"

namespace mscclpp {
namespace {

std::atomic<int (*)()> gIsInterrupted{nullptr};

using Clock = std::chrono::steady_clock;
using Engine = std::shared_ptr<ctran::api::Communicator>;

/// How often the limits of GPUs are looked at.
constexpr std::chrono::milliseconds kPause{50};
/// How long an abort waits for the news that the peer has died, which says more.
constexpr std::chrono::milliseconds kReason{500};

/// Behind a limit.
struct Known {
  std::weak_ptr<ctran::api::Communicator> engine;
  WaitLimit* ofGpu = nullptr;  ///< null of those of hosts
  std::optional<Clock::time_point> abortedAt;
};

/// The engine's communicators behind the limits of semaphores.
struct Engines {
  static Engines& all() {
    static auto& one = *new Engines;
    return one;
  }

  std::mutex mutex;  // guards what follows
  std::unordered_map<const WaitLimit*, Known> byLimit;
  bool isWatched = false;  ///< by a thread, while there are limits of GPUs
};

/// The engine is the caller's to let go of, without the lock: its end takes time.
Engine watchOne(Known& known) {
  WaitLimit& limit = *known.ofGpu;
  if (storedEnd(limit) != WaitEnd::None) return nullptr;
  if (isReadable(limit.peerProcess)) {
    storeFailed(limit, WaitEnd::Lost);
    return nullptr;
  }
  Engine engine = known.engine.lock();
  if (!engine || !engine->isAborted()) return engine;
  if (!known.abortedAt) known.abortedAt = Clock::now();
  if (Clock::now() - *known.abortedAt > kReason) storeFailed(limit, WaitEnd::Aborted);
  return engine;
}

void watch() {
  Engines& engines = Engines::all();
  std::vector<Engine> held;
  while (true) {
    std::this_thread::sleep_for(kPause);
    {
      const std::lock_guard lock(engines.mutex);
      engines.isWatched = false;
      for (auto& [limit, known] : engines.byLimit) {
        if (known.ofGpu == nullptr) continue;
        engines.isWatched = true;
        held.push_back(watchOne(known));
      }
      if (!engines.isWatched) return;
    }
    held.clear();
  }
}

}  // namespace

void setInterruption(int (*isInterrupted)()) { gIsInterrupted.store(isInterrupted); }

void checkInterruption() {
  int (*const isInterrupted)() = gIsInterrupted.load();
  const bool isMainThread = ::syscall(SYS_gettid) == ::getpid();
  if (isInterrupted == nullptr || !isMainThread || isInterrupted() == 0) return;
  throw Interrupted();
}

void endsWith(WaitLimit* limit, const Engine& engine, bool isOfGpu) {
  Engines& engines = Engines::all();
  const std::lock_guard lock(engines.mutex);
  engines.byLimit[limit] = {engine, isOfGpu ? limit : nullptr, {}};
  if (!isOfGpu || std::exchange(engines.isWatched, true)) return;
  serviceThread(&watch).detach();
}

void endsNoMore(const WaitLimit* limit) {
  Engines& engines = Engines::all();
  const std::lock_guard lock(engines.mutex);
  engines.byLimit.erase(limit);
}

bool isAborted(const WaitLimit* limit) {
  Engine engine;
  Engines& engines = Engines::all();
  {
    const std::lock_guard lock(engines.mutex);
    const auto found = engines.byLimit.find(limit);
    if (found != engines.byLimit.end()) engine = found->second.engine.lock();
  }
  return engine && engine->isAborted();
}

}  // namespace mscclpp
