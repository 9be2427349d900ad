#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/base/spin_lock.h"
#include "ctran/os/futex.h"
#include "ctran/os/process.h"
#include "ctran/trace/recording.h"
#include "ctran/transport/board.h"
#include "ctran/transport/condition.h"

namespace ctran {

/// The connections to other hosts, as a waiting thread sees them: it makes them progress itself,
/// because no peer on another host shares this rank's memory. Safe from any thread.
class ProgressEngine {
 public:
  virtual ~ProgressEngine() = default;
  /// Goes as far as possible without waiting. Returns whether something happened.
  virtual bool poll() = 0;
  /// Says that a thread is about to sleep. The next time `poll` may have something to do, the
  /// engine wakes this rank's sleepers, once.
  virtual void arm() = 0;
  /// Returns whether something that a rank sent before it left may still be on its way.
  virtual bool mayHear(int rank) = 0;
  /// Tells the other hosts of a failure.
  virtual void tell(const Error& error) = 0;
};

/// What the queues of one communicator share: the board, the failure, and a place to sleep.
class Core {
 public:
  /// `board` is only referred to, so it may be a member declared after this one; `sharers` is the
  /// number of ranks that share the cores of this host.
  Core(std::string name, Board& board, int sharers);

  const std::string name;
  Board& board;
  ProgressEngine* progress = nullptr;  ///< set before any queue is used; null on one host
  Recording* recording = nullptr;      ///< set before any queue is used; null: nothing is recorded

  /// Makes threads sleep at another board, that of the ranks of this host, which number `ranks`.
  /// Called before any queue is used.
  void sleepAt(Board& where, std::vector<int> ranks) {
    sleepBoard_ = &where;
    sleepRanks_ = std::move(ranks);
  }

  /// Makes the connections to other hosts progress, if there are any. Returns whether something
  /// happened.
  bool poll() { return progress != nullptr && progress->poll(); }

  /// Returns whether this process made the communicator. A child after fork() has only a copy,
  /// which it cannot use.
  bool belongsHere() const { return processToken() == process_; }
  Error forkError() const;

  /// How long a waiting thread looks without sleeping: it first spins, then yields its core.
  const int64_t spinNanos;
  const int64_t yieldNanos;

  int rank() const { return board.rank(); }
  int size() const { return board.size(); }

  /// Breaks the communicator on all ranks. The first failure stands, and every rank is told that
  /// one. Returns it, as the error to be thrown here.
  Error fail(const Error& error);
  /// Is called in a catch block: breaks the communicator with the exception that was caught. One
  /// that is no Error becomes an error of this rank while it was `doing` something. Returns what
  /// `fail` returns. Throws std::bad_alloc if memory runs out meanwhile.
  Error failCaught(const std::string& doing);
  /// Does what `failCaught` does on the engine's threads, which no exception may leave. What fails
  /// because memory ran out is met again at the thread's next look.
  void failCaughtHere(const char* doing) noexcept;
  bool failed() const { return board.failed(); }
  void throwIfFailed() {
    if (failed()) throwFailure();
  }

  /// Returns whether the condition can never hold, because the rank it waits for has left. A rank
  /// that has left is no failure as long as no operation waits for it.
  bool isHopeless(const Condition& waiting) { return goneRank(waiting) >= 0; }
  /// Returns the rank that has left and for which the condition waits; -1 if it can still hold.
  int goneRank(const Condition& waiting);
  Error leftError(int rank) const;
  /// Makes the error which says that this rank was interrupted in `op`.
  Error interruptedError(const std::string& op) const;

  /// Sleeps until `awaited` publishes something (-1: until any rank does), at most `limit`.
  /// `stillWaiting()` is called after the others have been told of the sleep, and prevents it by
  /// returning false. Safe from any thread. Returns true if a signal arrived.
  template <class StillWaiting>
  bool sleep(int awaited, std::chrono::nanoseconds limit, StillWaiting stillWaiting) {
    const uint32_t ticket = beginSleep(awaited);
    const bool signalled = stillWaiting() && futexWait(doorbell(), ticket, limit);
    endSleep();
    return signalled;
  }

  /// The two parts of `sleep`, for a thread that sleeps on several communicators at once.
  uint32_t beginSleep(int awaited);
  void endSleep();
  const std::atomic<uint32_t>& doorbell() {
    return sleepBoard_->control(sleepBoard_->rank()).doorbell;
  }

  /// Records a send or a receive. Each channel may be driven by another thread.
  uint64_t beginMessage(const OperationRecord& record);
  void endMessage(uint64_t record) { board.control(rank()).messages.complete(record); }

  /// Has to be called after a counter that other ranks of this host look at was moved, see
  /// Board::published.
  void published() { sleepBoard_->published(); }

  /// Wakes this rank's own sleepers, for example because an operation has ended on another thread.
  void wakeOwn() { sleepBoard_->wake(sleepBoard_->rank()); }

 private:
  [[noreturn]] void throwFailure();
  int placeOf(int rank) const;

  const uint64_t process_ = processToken();
  SpinLock messagesLock_;
  std::mutex sleepMutex_;
  Board* sleepBoard_;
  std::vector<int> sleepRanks_;  // their index here is their rank on that board
  int sleepers_ = 0;  // threads of this rank; if there are several, they wait for any rank
};

}  // namespace ctran
