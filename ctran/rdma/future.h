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

#include "ctran/base/error.h"

namespace ctran {

/// How a transfer ended: nothing, or why it failed.
using RdmaOutcome = std::optional<Error>;

/// Whoever carries transfers out, as those see it who wait for their ends.
class RdmaDriver {
 public:
  virtual ~RdmaDriver() = default;
  /// A thread begins, and ends, to call drive() again and again. `sleeps`: it has not seen what it
  /// waits for, and has to be woken.
  virtual void beginDriving() = 0;
  virtual void endDriving(bool sleeps) = 0;
  /// Does what can be done now.
  virtual void drive() = 0;
};

/// The end of a transfer, which any number of threads may wait for. Copies are of one transfer.
class RdmaFuture {
 public:
  RdmaFuture() : state_(std::make_shared<State>()) {}
  /// Who waits for it drives the transfers for a moment before it sleeps.
  explicit RdmaFuture(std::weak_ptr<RdmaDriver> driver) : RdmaFuture() {
    state_->driver = std::move(driver);
  }

  bool isReady() const {
    const std::lock_guard lock(state_->mutex);
    return state_->ready;
  }
  /// Whether it has ended within `timeout`.
  bool waitFor(std::chrono::nanoseconds timeout) const {
    driveUntil(timeout);
    std::unique_lock lock(state_->mutex);
    return state_->changed.wait_for(lock, timeout, [this] { return state_->ready; });
  }
  /// Waits for the end.
  RdmaOutcome outcome() const {
    driveUntil(kDriving);
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [this] { return state_->ready; });
    return state_->outcome;
  }
  /// Waits for the end; throws what made it fail.
  void get() const {
    if (const RdmaOutcome failed = outcome()) throw Error(*failed);
  }
  /// Calls `function` at the end, on the thread that sees it, or here if there has been an end. At
  /// most one function. It must not wait for a transfer.
  void onReady(std::function<void(const RdmaOutcome&)> function) const {
    {
      const std::lock_guard lock(state_->mutex);
      if (!state_->ready) {
        state_->function = std::move(function);
        return;
      }
    }
    function(state_->outcome);
  }

  /// For whoever carries the transfer out; once.
  void finish(RdmaOutcome outcome) const {
    std::function<void(const RdmaOutcome&)> function;
    {
      const std::lock_guard lock(state_->mutex);
      state_->outcome = std::move(outcome);
      state_->ready = true;
      state_->isEnded.store(true, std::memory_order_release);
      function.swap(state_->function);
      state_->changed.notify_all();
    }
    if (function) function(state_->outcome);
  }

 private:
  /// To sleep and be woken takes longer than most transfers.
  static constexpr std::chrono::nanoseconds kDriving = std::chrono::microseconds(200);

  void driveUntil(std::chrono::nanoseconds timeout) const {
    if (state_->isEnded.load(std::memory_order_acquire)) return;
    const std::shared_ptr<RdmaDriver> driver = state_->driver.lock();
    if (!driver) return;
    const auto end = std::chrono::steady_clock::now() + std::min(timeout, kDriving);
    driver->beginDriving();
    while (!state_->isEnded.load(std::memory_order_acquire) &&
           std::chrono::steady_clock::now() < end) {
      driver->drive();
      std::this_thread::yield();
    }
    driver->endDriving(!state_->isEnded.load(std::memory_order_acquire));
  }

  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool ready = false;
    std::atomic<bool> isEnded{false};  // as `ready`, for who drives
    std::weak_ptr<RdmaDriver> driver;
    RdmaOutcome outcome;  // set once, before `ready`
    std::function<void(const RdmaOutcome&)> function;
  };
  std::shared_ptr<State> state_;
};

}  // namespace ctran
