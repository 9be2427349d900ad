#pragma once

#include <chrono>
#include <exception>
#include <functional>

namespace ctran {

/// What a waiting thread tells its host language. All three are called on the waiting thread, none
/// of them while an operation completes within a few microseconds.
class WaitHooks {
 public:
  virtual ~WaitHooks() = default;
  virtual void beforeBlocking() {}  ///< e.g. release the interpreter lock
  virtual void afterBlocking() {}   ///< e.g. take it again; called even when the wait throws
  /// Called about ten times a second while blocked, and after a signal; may throw to end the wait.
  virtual void interrupted() {}
};

enum class WorkState { Queued, Running, Completed, Failed };

/// One posted operation.
class Work {
 public:
  virtual ~Work() = default;

  virtual WorkState state() const = 0;  ///< any thread, never blocks
  bool done() const { return state() == WorkState::Completed || state() == WorkState::Failed; }

  /// Drives the operation on the caller's thread until it ended; throws its Error if it failed.
  virtual void wait(WaitHooks* hooks = nullptr) = 0;

  /// As `wait`, at most this long; false if the operation has not ended (it goes on).
  virtual bool waitFor(std::chrono::nanoseconds limit, WaitHooks* hooks = nullptr) = 0;

  /// The error of a failed operation, else null.
  virtual std::exception_ptr error() const = 0;

  /// Called once when the operation starts, on the thread that has started it; at once if it has.
  /// Must not block or throw.
  virtual void onStart(std::function<void()> callback) = 0;

  /// Called once when the operation ends, on the thread that ended it; at once if it has. Must not
  /// block or throw.
  virtual void onDone(std::function<void()> callback) = 0;
};

}  // namespace ctran
