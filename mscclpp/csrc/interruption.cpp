#include "interruption.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace mscclpp {
namespace {

std::atomic<int (*)()> gIsInterrupted{nullptr};

/// The engine's communicators behind the limits of semaphores.
struct Engines {
  static Engines& all() {
    static auto& one = *new Engines;
    return one;
  }

  std::mutex mutex;
  std::unordered_map<const WaitLimit*, std::weak_ptr<ctran::api::Communicator>> byLimit;
};

}  // namespace

void setInterruption(int (*isInterrupted)()) { gIsInterrupted.store(isInterrupted); }

void checkInterruption() {
  int (*const isInterrupted)() = gIsInterrupted.load();
  const bool isMainThread = ::syscall(SYS_gettid) == ::getpid();
  if (isInterrupted == nullptr || !isMainThread || isInterrupted() == 0) return;
  throw Interrupted();
}

void endsWith(const WaitLimit* limit, const std::shared_ptr<ctran::api::Communicator>& engine) {
  Engines& engines = Engines::all();
  const std::lock_guard lock(engines.mutex);
  engines.byLimit[limit] = engine;
}

void endsNoMore(const WaitLimit* limit) {
  Engines& engines = Engines::all();
  const std::lock_guard lock(engines.mutex);
  engines.byLimit.erase(limit);
}

bool isAborted(const WaitLimit* limit) {
  std::shared_ptr<ctran::api::Communicator> engine;
  Engines& engines = Engines::all();
  {
    const std::lock_guard lock(engines.mutex);
    const auto found = engines.byLimit.find(limit);
    if (found != engines.byLimit.end()) engine = found->second.lock();
  }
  return engine && engine->isAborted();
}

}  // namespace mscclpp
