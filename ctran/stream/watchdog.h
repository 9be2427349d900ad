#pragma once

#include <functional>
#include <memory>

namespace ctran {

class StreamQueue;

/// The thread that looks after operations on streams, which no thread waits for. There is one per
/// process; it starts with the first communicator.
class Watchdog {
 public:
  /// Makes the thread call `queue->inspect()` from now on, as long as the queue exists.
  static void add(const std::shared_ptr<StreamQueue>& queue);
  /// Tells the thread that an operation has been enqueued, so that there is something to look
  /// after.
  static void poke();
  /// Releases `value` on the watchdog's thread soon; for threads that must not free device memory.
  static void release(std::shared_ptr<void> value);
  /// Runs `body`, which ends by itself, on a thread of its own; `stop` waits for it. Throws
  /// Error(System).
  static void spawn(const char* name, std::function<void()> body);
  /// Stops the thread for good. Is called before the driver shuts down and before the host language
  /// ends, which owns the buffers. Waits a moment for the thread and for those of `spawn`.
  static void stop();
  /// Returns whether the thread is stopped: operations that wait in vain are no longer ended.
  static bool isStopped();
};

}  // namespace ctran
