// How a communicator ends: failures and how they spread, abort, finalize.
#include <atomic>
#include <mutex>
#include <utility>

#include "ctran/base/clock.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/create.h"
#include "ctran/engine/gpu_queue.h"
#include "ctran/engine/hosts_queue.h"
#include "ctran/engine/live_settings.h"
#include "ctran/engine/peer_watcher.h"
#include "ctran/engine/progress.h"
#include "ctran/engine/waiter.h"

namespace ctran {

void Communicator::breakWith(const Error& error) {
  core_.fail(error);
  Progress::poke(Progress::When::Soon);
}

void Communicator::abort(const std::string& reason) {
  if (!core_.belongsHere()) throw core_.forkError();
  if (finalized_.load(std::memory_order_relaxed)) return;  // the others go on without this rank
  const Error error(ErrorKind::Aborted,
                    "communicator '" + core_.name + "' was aborted by rank " +
                        std::to_string(rank()) + (reason.empty() ? "" : ": " + reason),
                    {rank()});
  breakWith(error);
  if (gpu_) gpu_->breakWith(error);
  for (const auto& weak : dependents()) {
    if (const auto dependent = weak.lock()) dependent->abort(reason);
  }
}

void Communicator::addDependent(const std::shared_ptr<Communicator>& dependent) {
  std::lock_guard lock(dependentsMutex_);
  std::erase_if(dependents_, [](const auto& weak) { return weak.expired(); });
  dependents_.push_back(dependent);
}

std::vector<std::weak_ptr<Communicator>> Communicator::dependents() {
  std::lock_guard lock(dependentsMutex_);
  return dependents_;
}

void Communicator::finalize(WaitHooks* hooks) {
  if (finalized_.load(std::memory_order_relaxed)) return;
  if (gpu_) {
    gpu_->drain(hooks);
    gpu_->throwIfBroken();
  }
  if (core_.belongsHere()) {
    Waiter waiter(core_, hooks);
    const int64_t deadline = nowNanos() + timeoutNanos_.load(std::memory_order_relaxed);
    while (!idle() && nowNanos() < deadline) {
      if (progress()) continue;
      try {
        waiter.pause(
            -1, [&] { return !idle() && stillWaitsFor(-1); },
            [&](int64_t now) { return std::min(checkStuck(now), deadline); });
      } catch (const Error&) {
        // The communicator is broken; progress() ends what is queued with the same error.
      }
    }
    const std::optional<Error> error = disagreement();
    leave();
    if (gpu_) gpu_->leave();
    finalized_.store(true, std::memory_order_relaxed);
    if (error) throw *error;
  }
  finalized_.store(true, std::memory_order_relaxed);
}

std::optional<Error> Communicator::disagreement() {
  if (gpus_ || core_.failed() || !idle()) return std::nullopt;
  // If two ranks record a collective and then come here, at least one sees the other's record.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  try {
    core_.poll();  // what other hosts have said
    collectives_->checkPeers();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::Mismatch) return error;
  }
  return std::nullopt;
}

/// Another rank of this host may have failed; those whom this one knows have to hear of it.
void Communicator::tellFailure() {
  if (!core_.failed() || told_.load(std::memory_order_acquire)) return;
  try {
    board_->throwFailure();
  } catch (const Error& error) {
    tell(error);
  }
}

void Communicator::tell(const Error& error) {
  // The second caller waits, because it may be about to end the process, and with it what is being
  // told.
  std::lock_guard lock(tellMutex_);
  if (told_.load(std::memory_order_relaxed)) return;
  transport_->tell(error);
  told_.store(true, std::memory_order_release);
}

bool Communicator::isAborted() const {
  return hasFailed() || (gpu_ && (gpu_->isBroken() || !gpu_->isSound()));
}

void Communicator::throwIfBroken() {
  if (gpu_) {
    gpu_->diagnose();
    gpu_->throwIfBroken();
  }
  core_.throwIfFailed();
}

bool Communicator::hasFailed() const {
  // What the others have said meanwhile is known only after a look.
  if (transport_ && !core_.failed()) transport_->poll();
  return core_.failed();
}

void Communicator::leave() {
  if (transport_) {
    PeerWatcher::unwatch(watch_);
    if (urgentWatch_ != 0) PeerWatcher::unwatch(urgentWatch_);
  }
  localWatch_.stop();
  LiveSettings::stop(*this);
  if (functions_) functions_->group().leave();
  if (transport_) tellFailure();
  if (recording_) recording_->left();
  auto& state = board().control(rank()).state;
  if (state.exchange(Board::RankState::Left, std::memory_order_seq_cst) != Board::RankState::Left) {
    if (arena_) arena_->wakeAll();
    if (transport_) transport_->leave(kLinger);
  }
}

}  // namespace ctran
