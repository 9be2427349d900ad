#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "ctran/base/error.h"

namespace ctran {

/// How a transfer ended: nothing, or why it failed.
using RdmaOutcome = std::optional<Error>;

/// The end of a transfer, which any number of threads may wait for. Copies are of one transfer.
class RdmaFuture {
 public:
  RdmaFuture() : state_(std::make_shared<State>()) {}

  bool isReady() const {
    const std::lock_guard lock(state_->mutex);
    return state_->ready;
  }
  /// Whether it has ended within `timeout`.
  bool waitFor(std::chrono::nanoseconds timeout) const {
    std::unique_lock lock(state_->mutex);
    return state_->changed.wait_for(lock, timeout, [this] { return state_->ready; });
  }
  /// Waits for the end.
  RdmaOutcome outcome() const {
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
      function.swap(state_->function);
      state_->changed.notify_all();
    }
    if (function) function(state_->outcome);
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool ready = false;
    RdmaOutcome outcome;  // set once, before `ready`
    std::function<void(const RdmaOutcome&)> function;
  };
  std::shared_ptr<State> state_;
};

}  // namespace ctran
