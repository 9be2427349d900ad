#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/os/futex.h"
#include "ctran/os/process.h"
#include "ctran/trace/recording.h"
#include "ctran/transport/board.h"
#include "ctran/transport/condition.h"

namespace ctran {

/// What a thread that waits has to drive itself, because no peer shares this rank's memory: the
/// connections to other hosts. Any thread.
class Driver {
 public:
  virtual ~Driver() = default;
  /// Goes as far as possible without waiting; whether something happened.
  virtual bool poll() = 0;
  /// A thread is about to sleep: from now on, until that has happened once, wake this rank's
  /// sleepers when `poll` may have something to do.
  virtual void arm() = 0;
  /// Whether something that a rank sent before it left may still be on its way.
  virtual bool mayHear(int rank) = 0;
  /// Tells the other hosts of a failure.
  virtual void tell(const Error& error) = 0;
};

/// What the queues of one communicator share: its board, its failure, and a place to sleep.
class Core {
 public:
  /// `board` is only referred to, so that it may be a member after this; `sharers` ranks share the
  /// cores of this host.
  Core(std::string name, Board& board, int sharers);

  const std::string name;
  Board& board;
  Driver* driver = nullptr;        ///< set before any queue is used; null on one host
  Recording* recording = nullptr;  ///< set before any queue is used; null: nothing is recorded

  /// Where threads sleep instead of the board: that of the ranks of this host, which number
  /// `ranks`. Before any queue is used.
  void sleepAt(Board& where, std::vector<int> ranks) {
    sleepBoard_ = &where;
    sleepRanks_ = std::move(ranks);
  }

  /// Drives what has to be driven by hand; whether something happened.
  bool poll() { return driver != nullptr && driver->poll(); }

  /// Communicators belong to the process that made them; a child after fork() only has a copy.
  bool belongsHere() const { return processToken() == process_; }
  Error forkError() const;

  /// How long a waiting thread looks without sleeping: spinning, then giving its core away.
  const int64_t spinNanos;
  const int64_t yieldNanos;

  int rank() const { return board.rank(); }
  int size() const { return board.size(); }

  /// Breaks the communicator on all ranks. The first failure stands, and is what every rank is
  /// told: it is returned, as the error to be thrown here.
  Error fail(const Error& error);
  /// Where an exception has been caught, whatever it is: breaks the communicator with it, as one of
  /// this rank while it was `doing`, if it is no Error. Returns what `fail` does. Throws what is
  /// thrown while it does so, for want of memory.
  Error failCaught(const std::string& doing);
  /// The same on threads of the engine, which nothing may leave: they try again in a moment.
  void failCaughtHere(const char* doing) noexcept;
  bool failed() const { return board.failed(); }
  void throwIfFailed() {
    if (failed()) throwFailure();
  }

  /// Whether the condition will never hold, as the rank it waits for has left. (That is no failure
  /// as long as nobody waits for it.)
  bool isHopeless(const Condition& waiting) { return goneRank(waiting) >= 0; }
  /// That rank; -1 if there is hope.
  int goneRank(const Condition& waiting);
  Error leftError(int rank) const;
  /// That this rank was interrupted in `op`.
  Error interruptedError(const std::string& op) const;

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
  const std::atomic<uint32_t>& doorbell() {
    return sleepBoard_->control(sleepBoard_->rank()).doorbell;
  }

  /// The records of sends and receives have several writers: each channel may be driven by another
  /// thread.
  uint64_t beginMessage(const OperationRecord& record);
  void endMessage(uint64_t record);

  /// To be called after a counter that others of this host look at was moved, see Board::published.
  void published() { sleepBoard_->published(); }

  /// Wakes this rank's own sleepers, e.g. because an operation has ended on another thread.
  void wakeOwn() { sleepBoard_->wake(sleepBoard_->rank()); }

 private:
  [[noreturn]] void throwFailure();
  int placeOf(int rank) const;

  const uint64_t process_ = processToken();
  std::mutex messagesMutex_;
  std::mutex sleepMutex_;
  Board* sleepBoard_;
  std::vector<int> sleepRanks_;  // whose place in it is their index
  int sleepers_ = 0;             // threads of this rank; more than one wait for anybody
};

}  // namespace ctran
