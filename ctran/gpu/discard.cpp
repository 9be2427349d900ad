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

void freeDiscarded() noexcept {
  State& s = state();
  std::vector<Discarded> all;
  {
    const std::lock_guard lock(s.mutex);
    all.swap(s.discarded);
  }
  for (const Discarded& one : all) one();
}

}  // namespace ctran::gpu
