#include "ctran/engine/core.h"

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

Core::Core(std::string name, std::shared_ptr<SharedMapping> memory, int rank, int size)
    : name(std::move(name)),
      arena(std::move(memory), rank, size),
      spinNanos(size <= availableCores() ? kSpinMicros.get() * 1000 : 0),
      yieldNanos(kYieldMicros.get() * 1000) {}

Error Core::forkError() const {
  return Error(ErrorKind::InvalidArgument,
               "communicator '" + name + "' belongs to the process that forked this one", {}, {},
               "make communicators after the fork, or start processes with spawn");
}

Error Core::fail(const Error& error) {
  if (arena.fail(error)) return error;
  try {
    arena.throwFailure();
  } catch (const Error& first) {
    return first;
  }
}

int Core::goneRank(const Condition& waiting) {
  // Each of several is needed in the end: one that is hopeless is enough.
  for (int i = 0; i < waiting.alternativeCount; ++i) {
    const int gone = goneRank(waiting.alternatives[i]);
    if (gone >= 0) return gone;
  }
  Condition now = waiting;
  if (now.alternativeCount > 0 || now.rank < 0 || now.holds()) return -1;
  const auto& state = arena.control(now.rank).state;
  if (state.load(std::memory_order_acquire) != Arena::RankState::Left) return -1;
  return now.holds() ? -1 : now.rank;  // it may have moved its counter just before it left
}

Error Core::leftError(int rank) const {
  return Error(ErrorKind::PeerLost,
               "rank " + std::to_string(rank) + " has left communicator '" + name +
                   "' (finalize, or the end of its program) while rank " +
                   std::to_string(this->rank()) + " still needs it",
               {rank}, {}, "call finalize() on all ranks after the same operations");
}

uint64_t Core::beginMessage(const OperationRecord& record) {
  std::lock_guard lock(messagesMutex_);
  return arena.control(rank()).messages.begin(record);
}

void Core::endMessage(uint64_t record) {
  std::lock_guard lock(messagesMutex_);
  arena.control(rank()).messages.complete(record);
}

uint32_t Core::beginSleep(int awaited) {
  // Two sleepers of one rank share `awaited` and the doorbell: then anybody's news wakes both.
  std::lock_guard lock(sleepMutex_);
  return arena.prepareSleep(sleepers_++ == 0 ? awaited : -1);
}

void Core::endSleep() {
  std::lock_guard lock(sleepMutex_);
  --sleepers_;
}

}  // namespace ctran
