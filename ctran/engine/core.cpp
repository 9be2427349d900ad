#include "ctran/engine/core.h"

#include <algorithm>

#include "ctran/base/config.h"
#include "ctran/os/process.h"

namespace ctran {
namespace {

const ConfigInt kSpinMicros{
    "CTRAN_SPIN_MICROS", 50,
    "How long a waiting thread spins before it yields or sleeps, when there "
    "are at least as many cores as ranks on the host."};
const ConfigInt kYieldMicros{"CTRAN_YIELD_MICROS", 100,
                             "How long a waiting thread gives its core to others again and again "
                             "before it sleeps."};

}  // namespace

Core::Core(std::string name, Board& board, int sharers)
    : name(std::move(name)),
      board(board),
      spinNanos(sharers <= availableCores() ? kSpinMicros.get() * 1000 : 0),
      yieldNanos(kYieldMicros.get() * 1000),
      sleepBoard_(&board) {}

Error Core::forkError() const {
  return Error(ErrorKind::InvalidArgument,
               "communicator '" + name + "' belongs to the process that forked this one", {}, {},
               "make communicators after the fork, or start processes with spawn");
}

Error Core::fail(const Error& error) {
  const bool isFirst = board.fail(error);
  if (recording != nullptr) recording->failed(error);
  if (sleepBoard_ != &board) sleepBoard_->wakeAll();
  if (isFirst) {
    if (progress != nullptr) progress->tell(error);
    return error;
  }
  try {
    board.throwFailure();
  } catch (const Error& first) {
    return first;
  }
}

Error Core::failCaught(const std::string& doing) {
  const std::string where = "rank " + std::to_string(rank()) + " failed in " + doing;
  try {
    throw;
  } catch (const Error& error) {
    return fail(error);
  } catch (const std::exception& error) {  // no memory, for example
    return fail(Error(ErrorKind::System, where + ": " + error.what(), {rank()}, doing));
  } catch (...) {
    return fail(Error(ErrorKind::System, where + ": an unknown exception", {rank()}, doing));
  }
}

void Core::failCaughtHere(const char* doing) noexcept {
  try {
    failCaught(doing);
  } catch (...) {
    // What could not be told is met again at the next look.
  }
}

void Core::throwFailure() {
  poll();  // it may be another rank of this host that has failed: then others elsewhere are told
  board.throwFailure();
}

int Core::goneRank(const Condition& waiting) {
  int last = -1;
  for (int i = 0; i < waiting.alternativeCount; ++i) {
    const Condition& one = waiting.alternatives[i];
    if (waiting.anyWillDo && one.awaited() == rank()) continue;  // which waits, and does nothing
    const int gone = goneRank(one);
    if ((gone >= 0) != waiting.anyWillDo) return gone;
    last = gone;
  }
  Condition now = waiting;
  if (now.alternativeCount > 0) return last;
  if (now.rank < 0 || now.holds()) return -1;
  const int awaited = now.awaited();
  const Board::Control* const control = board.find(awaited);
  if (control == nullptr) return -1;
  if (control->state.load(std::memory_order_acquire) != Board::RankState::Left) return -1;
  if (progress != nullptr && progress->mayHear(awaited)) return -1;
  return now.holds() ? -1 : awaited;  // it may have moved its counter just before it left
}

Error Core::leftError(int rank) const {
  return Error(ErrorKind::PeerLost,
               "rank " + std::to_string(rank) + " has left communicator '" + name +
                   "' (finalize, or the end of its program) while rank " +
                   std::to_string(this->rank()) + " still needs it",
               {rank}, {}, "call finalize() on all ranks after the same operations");
}

Error Core::interruptedError(const std::string& op) const {
  return Error(ErrorKind::Aborted,
               "rank " + std::to_string(rank()) + " was interrupted in " + op +
                   " of communicator '" + name + "'",
               {rank()}, op,
               "of an interrupted call some ranks may have done their part, others not: make a new "
               "communicator");
}

uint64_t Core::beginMessage(const OperationRecord& record) {
  std::lock_guard lock(messagesLock_);
  return board.control(rank()).messages.begin(record);
}

uint32_t Core::beginSleep(int awaited) {
  // Two sleepers of one rank share `awaited` and the doorbell: then news of any rank wakes both.
  std::lock_guard lock(sleepMutex_);
  const uint32_t ticket = sleepBoard_->prepareSleep(sleepers_++ == 0 ? placeOf(awaited) : -1);
  if (progress != nullptr) progress->arm();
  return ticket;
}

int Core::placeOf(int rank) const {
  if (sleepBoard_ == &board || rank < 0) return rank;
  const auto found = std::find(sleepRanks_.begin(), sleepRanks_.end(), rank);
  return found == sleepRanks_.end() ? -1 : static_cast<int>(found - sleepRanks_.begin());
}

void Core::endSleep() {
  std::lock_guard lock(sleepMutex_);
  --sleepers_;
}

}  // namespace ctran
