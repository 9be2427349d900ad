#pragma once

#include <functional>
#include <memory>

namespace ctran {

class Communicator;

/// The thread that drives posted operations which nobody waits for; one per process, started with
/// the first of them.
class Progress {
 public:
  /// `Soon`: the thread is woken if it sleeps. `Lazily`: while operations are posted again and
  /// again and somebody waits for them, it looks a few hundred microseconds later, and the two do
  /// not take the core from each other.
  enum class When { Soon, Lazily };

  /// Drives this communicator's queues until they are idle.
  static void activate(std::shared_ptr<Communicator> communicator, When when);
  /// Makes the thread look again, if there is one.
  static void poke(When when);
  /// Before the host language ends, in whose memory the buffers of operations lie: waits for what
  /// is posted (CTRAN_EXIT_MILLIS at most), then stops the thread for good and leaves the
  /// communicators that still have something to do. What a thread waits for goes on to work.
  static void retire();
  /// Calls what may wait for other processes: here, or on a thread of its own if this one is the
  /// engine's, for which all communicators wait. `retire` waits for it.
  static void dispose(std::function<void()> end);
  /// Says that this thread is the engine's.
  static void enter();
  /// In a child after fork(), where the thread does not exist.
  static void forget();
};

}  // namespace ctran
