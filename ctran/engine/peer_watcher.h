#pragma once

#include <cstdint>
#include <functional>

#include "ctran/os/unique_fd.h"

namespace ctran {

/// Tells when processes end, and when other hosts have sent something to ranks that sleep. One
/// thread per process sleeps on the descriptors of both. A pidfd fires when the process itself
/// ends, even if children that it forked live on, and cannot be mistaken for a later process with
/// the same id.
class PeerWatcher {
 public:
  /// Calls `died` once, on the watcher's thread, unless `unwatch` is called before. `process` is
  /// the processToken() of the watched process: one descriptor is kept of each process, whatever
  /// the number of watches.
  static uint64_t watch(UniqueFd pidFd, uint64_t process, std::function<void()> died);
  /// Calls `isReadable` once after each `arm`, on the watcher's thread, when the descriptor has
  /// something to read; it must not block.
  static uint64_t watchReadable(int fd, std::function<void()> isReadable);
  static void arm(uint64_t watch);
  /// Ends a watch: `died` or `isReadable` is not called any more, unless it is being called right
  /// now.
  static void unwatch(uint64_t watch);
  /// Is called in a child after fork(), where the thread does not exist.
  static void forget();
};

}  // namespace ctran
