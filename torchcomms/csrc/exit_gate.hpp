#pragma once

#include <chrono>

namespace torch::comms {

/// Handles the end of a process whose other threads, daemon threads of Python, are still in calls.
///
/// At the end Python terminates a thread that asks for the interpreter's lock, in the middle of
/// whatever it does. A thread that is about to ask has to pass the gate first; once the gate is
/// closed, only the thread that closed it passes.
class ExitGate {
 public:
  static bool isClosed() noexcept;  ///< for this thread
  /// Returns whether this thread may pass. If so, it has to call `leave` when it has the lock.
  static bool enter() noexcept;
  static void leave() noexcept;
  /// Blocks until the process has ended. A thread calls it that may not pass, or that Python is
  /// terminating.
  [[noreturn]] static void stay();
  /// Closes the gate, and waits up to `limit` for the threads that have passed and not left. They
  /// need the lock meanwhile.
  static void close(std::chrono::milliseconds limit);
};

}  // namespace torch::comms
