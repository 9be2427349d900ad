#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "ctran/base/error.h"
#include "ctran/os/futex.h"
#include "ctran/os/process.h"
#include "ctran/transport/shm/arena.h"

namespace ctran {

/// What the lanes of one communicator share: its memory, its failure, and a place to sleep.
class Core {
 public:
  Core(std::string name, std::shared_ptr<SharedMapping> memory, int rank, int size);

  const std::string name;
  Arena arena;

  /// Communicators belong to the process that made them; a child after fork() only has a copy.
  bool belongsHere() const { return processToken() == process_; }
  Error forkError() const;

  /// How long a waiting thread looks without sleeping: spinning, then giving its core away.
  const int64_t spinNanos;
  const int64_t yieldNanos;

  int rank() const { return arena.rank(); }
  int size() const { return arena.size(); }

  /// Breaks the communicator on all ranks. The first failure stands, and is what every rank is
  /// told: it is returned, as the error to be thrown here.
  Error fail(const Error& error);
  bool failed() const { return arena.failed(); }
  void throwIfFailed() const {
    if (failed()) arena.throwFailure();
  }

  /// Whether the condition will never hold, as the rank it waits for has left. (That is no failure
  /// as long as nobody waits for it.)
  bool isHopeless(const Condition& waiting) { return goneRank(waiting) >= 0; }
  /// That rank; -1 if there is hope.
  int goneRank(const Condition& waiting);
  Error leftError(int rank) const;

  /// Sleeps until `awaited` publishes something (-1: anybody), at most `limit`, unless
  /// `stillWaiting()` says no after the others have been told of the sleep. Any thread. True if a
  /// signal came.
  template <class StillWaiting>
  bool sleep(int awaited, std::chrono::nanoseconds limit, StillWaiting stillWaiting) {
    const uint32_t ticket = beginSleep(awaited);
    const bool signalled = stillWaiting() && futexWait(doorbell(), ticket, limit);
    endSleep();
    return signalled;
  }

  /// The parts of `sleep`, for a thread that sleeps on several communicators at once.
  uint32_t beginSleep(int awaited);
  void endSleep();
  const std::atomic<uint32_t>& doorbell() { return arena.control(rank()).doorbell; }

  /// The records of sends and receives have several writers: each channel may be driven by another
  /// thread.
  uint64_t beginMessage(const OperationRecord& record);
  void endMessage(uint64_t record);

  /// Wakes this rank's own sleepers, e.g. because an operation has ended on another thread.
  void wakeOwn() { arena.wake(rank()); }

 private:
  const uint64_t process_ = processToken();
  std::mutex messagesMutex_;
  std::mutex sleepMutex_;
  int sleepers_ = 0;  // threads of this rank; more than one wait for anybody
};

}  // namespace ctran
