#pragma once

#include <cstdint>
#include <functional>

#include "ctran/os/unique_fd.h"

namespace ctran {

/// Tells when processes end, and when there is news from other hosts for ranks that sleep: one
/// thread per process sleeps on their descriptors. A pidfd fires when the
/// process itself ends, even if children that it forked live on, and with no process id that could
/// be somebody else's by then.
class PeerWatcher {
 public:
  /// `died` is called once, on the watcher's thread, unless the watch ended before. `process` is
  /// its processToken(): whatever the number of watches, one descriptor is kept of each.
  static uint64_t watch(UniqueFd pidFd, uint64_t process, std::function<void()> died);
  /// `isReadable` is called once after each `arm`, on the watcher's thread, when the descriptor has
  /// something to read; it must not block.
  static uint64_t watchReadable(int fd, std::function<void()> isReadable);
  static void arm(uint64_t watch);
  /// After this `died` or `isReadable` is not called any more, unless it is being called right now.
  static void unwatch(uint64_t watch);
  /// In a child after fork(), where the thread does not exist.
  static void forget();
};

}  // namespace ctran
