#pragma once

#include <functional>
#include <memory>

namespace torch::comms::stream {

class StreamGroup;

/// The thread that looks after operations which nobody waits for; one per process, made for the
/// first communicator.
class Watchdog {
 public:
  static void add(const std::shared_ptr<StreamGroup>& group);
  /// An operation has been issued: the thread has something to look after.
  static void poke();
  /// Lets go of `held` on the thread soon: for threads that must not free device memory.
  static void bury(std::shared_ptr<void> held);
  /// Runs `body`, which should end by itself, on a thread of its own. Throws ctran::Error (System).
  static void spawn(const char* name, std::function<void()> body);
  /// Before the host language ends, in whose memory tensors lie, and the library: stops the thread
  /// for good, and lets those of `spawn` finish, for a while.
  static void retire();
  /// Whether nobody ends any more what waits in vain.
  static bool isRetired();
};

}  // namespace torch::comms::stream
