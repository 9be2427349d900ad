#pragma once

#include <functional>
#include <memory>

namespace ctran {

class StreamQueue;

/// The thread that looks after operations on streams, which no thread waits for. One per process;
/// it starts with the first communicator.
class Watchdog {
 public:
  /// From now on the thread calls `queue->inspect()`, as long as the queue exists.
  static void add(const std::shared_ptr<StreamQueue>& queue);
  /// An operation has been enqueued: the thread has something to look after.
  static void poke();
  /// Lets go of `value` on the thread soon: for threads that must not free device memory.
  static void release(std::shared_ptr<void> value);
  /// Runs `body`, which ends by itself, on a thread of its own that `stop` waits for. Throws
  /// Error(System).
  static void spawn(const char* name, std::function<void()> body);
  /// Before the host language ends, which owns the buffers, and before the driver does: stops the
  /// thread for good. Waits a moment for it and for those of `spawn`.
  static void stop();
  /// Whether operations that wait in vain are not ended any more.
  static bool isStopped();
};

}  // namespace ctran
