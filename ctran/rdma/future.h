#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "ctran/base/error.h"
#include "ctran/os/process.h"

namespace ctran {

/// How a transfer ended: nothing, or why it failed.
using RdmaOutcome = std::optional<Error>;

/// What carries transfers out, as those see it who wait for their ends.
class RdmaProgress {
 public:
  virtual ~RdmaProgress() = default;
  /// A thread begins, and ends, to call progress() again and again. `sleeps`: it has not seen what
  /// it waits for, and has to be woken; a call of endSleeping() follows.
  virtual void beginPolling() = 0;
  virtual void endPolling(bool sleeps) = 0;
  /// Somebody who does not poll is to be told of an end, and has been told.
  virtual void beginSleeping() = 0;
  virtual void endSleeping() = 0;
  /// Does what can be done now.
  virtual void progress() = 0;
};

/// The end of a transfer, which any number of threads may wait for. Copies are of one transfer.
/// Two kinds of callers would wait for ever for one that has not ended, and are refused: a function
/// of onReady(), since the end may be for its own thread to tell, and a forked child.
class RdmaFuture {
 public:
  RdmaFuture() : state_(std::make_shared<State>()) {}
  /// Who waits for it makes progress for a moment before it sleeps.
  explicit RdmaFuture(std::weak_ptr<RdmaProgress> progress) : RdmaFuture() {
    state_->progress = std::move(progress);
  }

  bool isReady() const { return state_->isEnded.load(std::memory_order_acquire); }
  /// Whether it has ended within `timeout`; false at once where waiting is refused.
  bool waitFor(std::chrono::nanoseconds timeout) const {
    if (isReady()) return true;
    if (whyRefused()) return false;
    const bool sleeps = pollFor(timeout);
    bool ready;
    {
      std::unique_lock lock(state_->mutex);
      ready = state_->changed.wait_for(lock, timeout, [this] { return isReady(); });
    }
    if (sleeps) endSleeping();
    return ready;
  }
  /// Waits for the end; where waiting is refused, that error.
  RdmaOutcome outcome() const {
    if (isReady()) return state_->outcome;
    if (RdmaOutcome refused = whyRefused()) return refused;
    const bool sleeps = pollFor(kPolling);
    {
      std::unique_lock lock(state_->mutex);
      state_->changed.wait(lock, [this] { return isReady(); });
    }
    if (sleeps) endSleeping();
    return state_->outcome;
  }
  /// Waits for the end; throws what made it fail.
  void get() const {
    if (const RdmaOutcome failed = outcome()) throw Error(*failed);
  }
  /// Calls `function` at the end, on the thread that sees it, or here if there has been an end. At
  /// most one function.
  void onReady(std::function<void(const RdmaOutcome&)> function) const {
    if (isReady()) return call(function, state_->outcome);
    if (!isOurs()) return call(function, ofParent());
    const std::shared_ptr<RdmaProgress> progress = state_->progress.lock();
    if (progress) progress->beginSleeping();  // finish() ends it
    {
      const std::lock_guard lock(state_->mutex);
      if (!isReady()) {
        state_->function = std::move(function);
        return;
      }
    }
    if (progress) progress->endSleeping();
    call(function, state_->outcome);
  }

  /// For whoever carries the transfer out; once.
  void finish(RdmaOutcome outcome) const {
    std::function<void(const RdmaOutcome&)> function;
    {
      const std::lock_guard lock(state_->mutex);
      state_->outcome = std::move(outcome);
      state_->isEnded.store(true, std::memory_order_release);
      function.swap(state_->function);
      state_->changed.notify_all();
    }
    if (!function) return;
    endSleeping();
    call(function, state_->outcome);
  }

 private:
  /// To sleep and be woken takes longer than most transfers.
  static constexpr std::chrono::nanoseconds kPolling = std::chrono::milliseconds(20);
  /// Polls between two looks at the clock, and two times at which the processor is given away.
  static constexpr unsigned kPollsPerLook = 16, kPollsPerYield = 64;

  /// It may not wait, on whichever thread it is.
  static void call(const std::function<void(const RdmaOutcome&)>& function,
                   const RdmaOutcome& outcome) {
    struct Callback {
      const bool outer = std::exchange(isInCallback_, true);
      ~Callback() { isInCallback_ = outer; }
    } const callback;
    function(outcome);
  }

  /// Nothing of the parent's may be locked in a forked child: who has locked it may not be there.
  bool isOurs() const { return state_->process == processToken(); }
  static Error ofParent() {
    return {ErrorKind::InvalidArgument,
            "this RDMA transfer is of the process that forked, and had not ended then"};
  }
  RdmaOutcome whyRefused() const {
    if (!isOurs()) return ofParent();
    if (!isInCallback_) return std::nullopt;
    return Error(ErrorKind::InvalidArgument,
                 "a callback of an RDMA transfer cannot wait for one that has not ended", {}, {},
                 "wait in another thread, or go on in a callback of that transfer");
  }

  /// Until the end, if that comes within `timeout` and a moment. Whether the caller sleeps now.
  bool pollFor(std::chrono::nanoseconds timeout) const {
    const std::shared_ptr<RdmaProgress> progress = state_->progress.lock();
    if (!progress) return false;
    const auto end = std::chrono::steady_clock::now() + std::min(timeout, kPolling);
    progress->beginPolling();
    for (unsigned polls = 1; !isReady(); ++polls) {
      progress->progress();
      if (polls % kPollsPerYield == 0) std::this_thread::yield();
      if (polls % kPollsPerLook == 0 && std::chrono::steady_clock::now() >= end) break;
    }
    const bool sleeps = !isReady();
    progress->endPolling(sleeps);
    return sleeps;
  }
  void endSleeping() const {
    if (const std::shared_ptr<RdmaProgress> progress = state_->progress.lock())
      progress->endSleeping();
  }

  static inline thread_local bool isInCallback_ = false;

  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<bool> isEnded{false};  // set under the mutex
    const uint64_t process = processToken();
    std::weak_ptr<RdmaProgress> progress;
    RdmaOutcome outcome;  // set once, before `isEnded`
    std::function<void(const RdmaOutcome&)> function;
  };
  std::shared_ptr<State> state_;
};

}  // namespace ctran
