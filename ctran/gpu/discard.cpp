#include "ctran/gpu/discard.h"

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/base/log.h"
#include "ctran/gpu/runtime.h"

namespace ctran::gpu {
namespace {

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
  std::atomic<int> launching{0};
  std::atomic<bool> isFreeing{false};
};

/// Never destroyed: memory is let go of until the process ends.
State& state() {
  static State& made = *new State;
  return made;
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

void deferDiscarding() noexcept { state().isDeferred = true; }

void freeDiscarded(const std::function<bool()>& isIdle) noexcept {
  State& s = state();
  {
    const std::lock_guard lock(s.mutex);
    if (s.discarded.empty()) return;
  }
  s.isFreeing = true;  // a thread that launches from here on waits, and others have been counted
  if (s.launching == 0 && isIdle()) {
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
