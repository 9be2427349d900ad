#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/base/work.h"
#include "ctran/collective/collective.h"
#include "ctran/engine/operation_queue.h"

namespace ctran {

/// A posted operation. `owner` keeps the communicator alive as long as the work is held.
class Operation final : public Work, public std::enable_shared_from_this<Operation> {
 public:
  Operation(OperationQueue& queue, std::shared_ptr<void> owner, Collective&& collective,
            std::vector<std::byte> scratch, std::shared_ptr<void> keepAlive, int64_t timeoutNanos);

  WorkState state() const override { return state_.load(std::memory_order_acquire); }
  void wait(WaitHooks* hooks) override;
  bool waitFor(std::chrono::nanoseconds limit, WaitHooks* hooks) override;
  std::exception_ptr error() const override;
  void onStart(std::function<void()> callback) override;
  void onDone(std::function<void()> callback) override;

  const Collective& collective() const { return collective_; }
  int64_t timeoutNanos() const { return timeoutNanos_; }
  uint64_t calledAt() const { return calledAt_; }  ///< ticks
  int64_t deadlineNanos() const { return deadlineNanos_; }

  void markRunning() { state_.store(WorkState::Running, std::memory_order_relaxed); }
  /// Calls the callbacks of the start. Called after `markRunning` and without locks, because
  /// foreign code runs.
  void tellStarted();
  /// Ends the operation; without an error it has completed.
  void finish(std::optional<Error> error);
  /// Calls the callbacks of the end and releases what was kept alive. Called once, after `finish`
  /// and without locks, because foreign code runs.
  void tell();

 protected:
  void interrupt() override;

 private:
  bool drive(int64_t limitNanos, WaitHooks* hooks);
  bool driveUntil(int64_t limitNanos, WaitHooks* hooks);

  OperationQueue& queue_;
  std::shared_ptr<void> owner_;
  const Collective collective_;
  std::vector<std::byte> scratch_;  // the scaled input, see premul.h
  std::shared_ptr<void> keepAlive_;
  const int64_t timeoutNanos_;
  const int64_t deadlineNanos_;
  const uint64_t calledAt_ = ticks();
  std::atomic<WorkState> state_{WorkState::Queued};
  mutable std::mutex mutex_;  // guards what follows
  std::optional<Error> error_;
  std::vector<std::function<void()>> startCallbacks_;
  bool tellingStart_ = false;  ///< a thread is calling them
  bool endIsUntold_ = false;   ///< that thread has to call the callbacks of the end
  std::vector<std::function<void()>> callbacks_;
};

}  // namespace ctran
