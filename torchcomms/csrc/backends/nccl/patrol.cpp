// What the watchdog does for a group: notes what has ended, and sees what has gone wrong.

#include <algorithm>

#include "ctran/base/config.h"
#include "torchcomms/csrc/backends/nccl/group.hpp"
#include "torchcomms/csrc/backends/stream/operation.hpp"

namespace torch::comms::nccl {

namespace {

/// Off: on the one GPU host where it has run (torch 2.11) the watchdog's thread crashed.
const ctran::ConfigBool kWatchPeers{
    "TORCHCOMMS_NCCL_WATCH_PEERS", false,
    "Whether backends nccl and its kin notice at once that a process of this host has died while "
    "an operation waits, instead of by the timeout. Experimental."};

using ctran::ErrorKind;
using std::chrono::milliseconds;

/// An operation that takes longer than this makes us look whether another rank has given up.
constexpr milliseconds kBulletinInterval{500};
constexpr milliseconds kMissingPatience{1500};

std::string listed(const std::vector<int>& ranks) {
  std::string text;
  for (const int r : ranks) text += (text.empty() ? "" : ", ") + std::to_string(r);
  return text;
}

}  // namespace

void Group::patrol() {
  try {
    const Clock::time_point now = Clock::now();
    retireEnded();
    if (!broken_) lookForErrors();
    if (!broken_) lookAtCall(now);
    if (!broken_) lookAtDeadlines(now);
    if (!broken_ && setup_.bulletin) lookAtBulletin(now);
    std::optional<ctran::Error> news;
    {
      const std::lock_guard lock(errorMutex_);
      if (std::exchange(announce_, false) && setup_.bulletin) news = error_;
    }
    if (news) setup_.bulletin->announceError(*news);
  } catch (const ctran::Error& error) {
    breakWith(error);
  } catch (const std::exception& error) {
    breakWith(ctran::Error(ErrorKind::System, error.what()));
  }
}

void Group::lookForErrors() {
  Result state = Result::Success;
  std::optional<ctran::Error> error;
  {
    const std::unique_lock lock(inside_, std::try_to_lock);
    if (!lock || !handle_) return;
    check(library().commGetAsyncError(handle_, &state), "ncclCommGetAsyncError");
    if (state == Result::Success || state == Result::InProgress) return;
    error = translated(state, "asynchronous error");
  }
  breakWith(*error);
}

Clock::duration Group::callAge(Clock::time_point now) const {
  const Clock::duration::rep start = callStart_;
  return start == 0 ? Clock::duration::zero() : now.time_since_epoch() - Clock::duration(start);
}

void Group::lookAtCall(Clock::time_point now) {
  const milliseconds timeout(callTimeout_);
  if (callAge(now) <= timeout) return;
  breakWith(timedOut(describe(callOp_, *this) + " makes connections, and", timeout));
}

void Group::lookAtDeadlines(Clock::time_point now) {
  const std::shared_ptr<stream::Operation> late = findLate(now);
  if (!late) return;
  const std::string what =
      "Operation " + std::to_string(late->sequence()) + ", " + describe(late->op(), *this) + ",";
  ctran::Error error = timedOut(what, late->timeout());
  std::vector<int> missing;
  std::string found;
  if (setup_.bulletin) {
    missing = setup_.bulletin->findMissing(late->sequence(), kMissingPatience);
    found =
        missing.empty() ? "; all ranks wait in it" : "; not waiting in it: rank " + listed(missing);
  }
  breakWith(ctran::Error(
      ErrorKind::Timeout,
      what + " has not ended within " + std::to_string(late->timeout().count()) + " ms" + found,
      missing, std::string(toString(late->op())), error.hint()));
}

void Group::lookAtBulletin(Clock::time_point now) {
  if (now - bulletinRead_ < kBulletinInterval) return;
  bool waits = callAge(now) > kBulletinInterval;
  {
    const std::lock_guard lock(queueMutex_);
    for (const Queue& queue : queues_) {
      waits = waits || (!queue.operations.empty() &&
                        now - queue.operations.front()->start() > kBulletinInterval);
    }
  }
  if (!waits) return;
  bulletinRead_ = now;
  if (const auto error = setup_.bulletin->readError()) {
    return breakWith(*error, /*announce=*/false);
  }
  if (!kWatchPeers.get()) return;
  const std::vector<int> dead = setup_.bulletin->findDead();
  if (dead.empty()) return;
  breakWith(ctran::Error(ErrorKind::PeerLost,
                         "Rank " + listed(dead) + " of communicator '" + setup_.name +
                             "' has died; an operation of rank " + std::to_string(rank()) +
                             " waits for it",
                         dead, {}, "look at what that rank has written"));
}

}  // namespace torch::comms::nccl
