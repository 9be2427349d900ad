#pragma once

#include <functional>
#include <memory>

namespace ctran {

class Communicator;

/// The thread that drives posted operations for which no thread waits. There is one per process,
/// started with the first such operation.
class Progress {
 public:
  /// `Soon`: the thread is woken if it sleeps. `Lazily`: while a program posts operations again and
  /// again and waits for them, the thread looks a few hundred microseconds later, so that it does
  /// not take the core from the program's thread.
  enum class When { Soon, Lazily };

  /// Drives this communicator's queues until they are idle.
  static void activate(std::shared_ptr<Communicator> communicator, When when);
  /// Makes the thread look again, if there is one.
  static void poke(When when);
  /// Is called before the host language ends, in whose memory the buffers of operations lie. Waits
  /// for what is posted (CTRAN_EXIT_MILLIS at most), then stops the thread for good and leaves the
  /// communicators that still have something to do. Operations for which a thread waits go on.
  static void retire();
  /// Calls `end`, which may wait for other processes: on this thread, or on one of its own if this
  /// is a thread of the engine, on which all communicators depend. `retire` waits for it.
  static void dispose(std::function<void()> end);
  /// Marks this thread as one of the engine's.
  static void enter();
  /// Is called in a child after fork(), where the thread does not exist.
  static void forget();
};

}  // namespace ctran
