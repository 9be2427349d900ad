#pragma once

#include <chrono>

namespace torch::comms {

/// The end of a process whose other threads, daemons of Python, are still in calls.
///
/// Python ends a thread that asks for the interpreter's lock then, in the middle of whatever it
/// does. Who is about to ask passes the gate first; when it is closed, nobody does but the thread
/// that closed it.
class ExitGate {
 public:
  static bool isClosed() noexcept;  ///< to this thread
  /// Whether this thread may pass; if so, it leaves when it has the lock.
  static bool enter() noexcept;
  static void leave() noexcept;
  /// What a thread does that may not pass, or that Python is ending: nothing, until the process has
  /// ended.
  [[noreturn]] static void stay();
  /// Waits for those that have passed and not left, at most so long. They need the lock meanwhile.
  static void close(std::chrono::milliseconds limit);
};

}  // namespace torch::comms
