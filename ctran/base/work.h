#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <span>

#include "ctran/base/export.h"

namespace ctran {

/// What a waiting thread tells its host language. All three are called on the waiting thread, none
/// of them while an operation completes within a few microseconds.
class CTRAN_API WaitHooks {
 public:
  virtual ~WaitHooks() = default;
  virtual void beforeBlocking() {}  ///< e.g. release the interpreter lock
  virtual void afterBlocking() {}   ///< e.g. take it again; called even when the wait throws
  /// Called about ten times a second while blocked, and after a signal; may throw to end the wait.
  virtual void interrupted() {}
};

/// For the time of a section that may block.
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

/// One posted operation.
class CTRAN_API Work {
 public:
  virtual ~Work() = default;

  virtual WorkState state() const = 0;  ///< any thread, never blocks
  bool done() const { return state() == WorkState::Completed || state() == WorkState::Failed; }

  /// Drives the operation on the caller's thread until it ended; throws its Error if it failed.
  virtual void wait(WaitHooks* hooks = nullptr) = 0;

  /// As `wait`, at most this long; false if the operation has not ended (it goes on).
  virtual bool waitFor(std::chrono::nanoseconds limit, WaitHooks* hooks = nullptr) = 0;

  /// Waits for operations that a call has posted for itself: when this returns or throws, they have
  /// all ended, and their buffers are the caller's again. Throws the first error. What `hooks`
  /// throw fails the communicator, on all ranks, as the others may have done their part already.
  static void finish(std::span<const std::shared_ptr<Work>> works, WaitHooks* hooks);

  /// The error of a failed operation, else null.
  virtual std::exception_ptr error() const = 0;

  /// Called once when the operation starts, on the thread that has started it; at once if it has.
  /// Must not block or throw.
  virtual void onStart(std::function<void()> callback) = 0;

  /// Called once when the operation ends, on the thread that ended it; at once if it has. Must not
  /// block or throw.
  virtual void onDone(std::function<void()> callback) = 0;

 protected:
  /// The call that waits for this operation was interrupted: fails the communicator.
  virtual void interrupt() = 0;
};

}  // namespace ctran
