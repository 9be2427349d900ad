#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <span>

#include "ctran/base/export.h"

namespace ctran {

/// What a waiting thread tells its host language. All three are called on the waiting thread; none
/// is called while an operation completes within a few microseconds.
class CTRAN_API WaitHooks {
 public:
  virtual ~WaitHooks() = default;
  virtual void beforeBlocking() {}  ///< for example: release the interpreter lock
  /// For example: take the lock again; called even when the wait throws.
  virtual void afterBlocking() {}
  /// Called about ten times a second while blocked, and after a signal; may throw to end the wait.
  virtual void interrupted() {}
};

/// Tells the hooks of a section that may block, while it lives.
class Blocking {
 public:
  explicit Blocking(WaitHooks* hooks) : hooks_(hooks) {
    if (hooks_ != nullptr) hooks_->beforeBlocking();
  }
  ~Blocking() {
    if (hooks_ != nullptr) hooks_->afterBlocking();
  }
  Blocking(const Blocking&) = delete;
  Blocking& operator=(const Blocking&) = delete;

 private:
  WaitHooks* const hooks_;
};

enum class WorkState { Queued, Running, Completed, Failed };

/// A posted operation.
class CTRAN_API Work {
 public:
  virtual ~Work() = default;

  virtual WorkState state() const = 0;  ///< safe from any thread, never blocks
  bool done() const { return state() == WorkState::Completed || state() == WorkState::Failed; }

  /// Drives the operation on the caller's thread until it has ended. Throws its Error if it failed.
  virtual void wait(WaitHooks* hooks = nullptr) = 0;

  /// Waits as `wait` does, at most for `limit`. Returns false if the operation has not ended; it
  /// goes on.
  virtual bool waitFor(std::chrono::nanoseconds limit, WaitHooks* hooks = nullptr) = 0;

  /// Waits for operations that a call has posted for itself: when this returns or throws, they have
  /// all ended, and their buffers are the caller's again. Throws the first error. If `hooks` throw,
  /// the communicator fails on all ranks, as the others may have done their part already.
  static void finish(std::span<const std::shared_ptr<Work>> works, WaitHooks* hooks);

  /// Returns the error of a failed operation, else null.
  virtual std::exception_ptr error() const = 0;

  /// Calls `callback` once, when the operation starts, on the thread that has started it; at once
  /// if it has. The callback must not block or throw.
  virtual void onStart(std::function<void()> callback) = 0;

  /// Calls `callback` once, when the operation ends, on the thread that ended it; at once if it
  /// has. The callback must not block or throw.
  virtual void onDone(std::function<void()> callback) = 0;

 protected:
  /// Is called when the call that waits for this operation was interrupted; fails the communicator.
  virtual void interrupt() = 0;
};

}  // namespace ctran
