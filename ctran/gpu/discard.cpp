#include "ctran/gpu/discard.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/base/log.h"
#include "ctran/gpu/runtime.h"

namespace ctran::gpu {
namespace {

constexpr size_t kIdleEvents = 64;

struct Discarded {
  const Runtime* runtime;
  int device;
  std::function<void()> free;

  void operator()() const noexcept {
    try {
      const ActiveDevice active(*runtime, device);
      const RelaxedCapture relaxed(*runtime);  // else a capture by another thread would be spoiled
      free();
    } catch (const Error& error) {  // of a device that is lost, or not this process's, all has gone
      log(LogComponent::Gpu, LogLevel::Debug, "memory was not freed: %s", error.what());
    }
  }
};

struct State {
  std::atomic<bool> isDeferred{false};
  std::mutex mutex;
  std::vector<Discarded> discarded;
  std::function<bool()> isIdle;
  std::vector<PooledEvent> kept;
  std::map<int, std::shared_ptr<EventPool>> events;  ///< of each device
  std::mutex freeing;
  std::atomic<int> launching{0};
  std::atomic<bool> isFreeing{false};
};

/// Never destroyed: memory is let go of until the process ends.
State& state() {
  static State& made = *new State;
  return made;
}

/// Forgets which points have been reached, with the lock held.
bool allReached(State& s) noexcept {
  if (s.kept.empty()) return true;
  const RelaxedCapture relaxed(Runtime::of(Platform::Cuda));
  const Driver& driver = Driver::get();
  std::erase_if(s.kept, [&](const PooledEvent& event) {
    return driver.eventQuery(event.get()) != kNotReady;
  });
  return s.kept.empty();
}

bool isIdle(State& s) noexcept {
  std::unique_lock lock(s.mutex);
  if (!allReached(s)) return false;
  const std::function<bool()> asked = s.isIdle;
  lock.unlock();
  return !asked || asked();
}

}  // namespace

void discard(const Runtime& runtime, int device, std::function<void()> free) noexcept {
  State& s = state();
  Discarded one{&runtime, device, std::move(free)};
  if (!s.isDeferred) return one();
  const std::lock_guard lock(s.mutex);
  s.discarded.push_back(std::move(one));
}

void discard(int device, std::function<void()> free) noexcept {
  discard(Runtime::of(Platform::Cuda), device, std::move(free));
}

void deferDiscarding(std::function<bool()> isIdle) noexcept {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.isIdle = std::move(isIdle);
  s.isDeferred = true;
}

void freeDiscarded() noexcept {
  State& s = state();
  const std::lock_guard alone(s.freeing);
  {
    const std::lock_guard lock(s.mutex);
    if (s.discarded.empty()) return;
  }
  s.isFreeing = true;  // a thread that launches from here on waits, and others have been counted
  if (s.launching == 0 && isIdle(s)) {
    std::vector<Discarded> all;
    {
      const std::lock_guard lock(s.mutex);
      all.swap(s.discarded);
    }
    for (const Discarded& one : all) one();
  }
  s.isFreeing = false;
  s.isFreeing.notify_all();
}

void keepUntilReached(Stream stream) noexcept {
  State& s = state();
  if (!s.isDeferred) return;
  try {
    const Runtime& runtime = Runtime::of(Platform::Cuda);
    if (runtime.isCapturing(stream)) return;
    const int device = currentDevice().value_or(0);
    const std::lock_guard lock(s.mutex);
    allReached(s);
    const RelaxedCapture relaxed(runtime);
    std::shared_ptr<EventPool>& pool = s.events[device];
    if (!pool) pool = std::make_shared<EventPool>(runtime, device, kIdleEvents);
    PooledEvent reached(pool);
    if (Driver::get().eventRecord(reached.get(), stream) == kSuccess) {
      s.kept.push_back(std::move(reached));
    }
  } catch (const Error& error) {  // of a device that is lost: nothing runs there
    log(LogComponent::Gpu, LogLevel::Debug, "a kernel is not waited for: %s", error.what());
  }
}

Launching::Launching() noexcept {
  State& s = state();
  for (++s.launching; s.isFreeing; ++s.launching) {
    --s.launching;
    s.isFreeing.wait(true);
  }
}

Launching::~Launching() {
  if (counts_) --state().launching;
}

}  // namespace ctran::gpu
