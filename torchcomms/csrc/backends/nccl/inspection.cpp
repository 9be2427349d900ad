// What the watchdog does for a group: notes what has ended, and sees what has gone wrong.

#include <algorithm>

#include "ctran/base/config.h"
#include "ctran/base/rank_list.h"
#include "torchcomms/csrc/backends/nccl/group.hpp"

namespace torch::comms::nccl {

namespace {

const ctran::ConfigBool kWatchPeers{
    "TORCHCOMMS_NCCL_WATCH_PEERS", true,
    "Whether backends nccl and its kin notice at once that a process of this host has died while "
    "an operation waits, instead of by the timeout."};

using ctran::ErrorKind;
using std::chrono::milliseconds;

/// An operation that takes longer than this makes us look whether another rank has given up.
constexpr milliseconds kOutOfBandInterval{500};
/// How long other ranks may take to say that they wait, too; and the store to tell.
constexpr milliseconds kMissingPatience{1500};
constexpr milliseconds kStorePatience{500};

}  // namespace

bool Group::inspect() {
  const Clock::time_point now = Clock::now();
  bool quiet = true;
  try {
    retireEnded();
    if (!isBroken()) {
      running_ = replays_.mostUrgent(now);
      quiet = isIdle() && !running_;
      lookForErrors();
    }
    if (!isBroken()) lookAtDeadlines(now);
    if (!isBroken() && setup_.outOfBand) checkOutOfBand(now);
  } catch (const ctran::Error& error) {
    breakWith(error);
  } catch (const std::exception& error) {
    breakWith(ctran::Error(ErrorKind::System, error.what()));
  }
  return quiet;
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

std::optional<Group::Late> Group::findLateCall(Clock::time_point now) {
  const auto called = [&](uint64_t sequence, std::string_view op) {
    return "Operation " + std::to_string(sequence) + ", " + describe(op) + ",";
  };
  if (const std::shared_ptr<ctran::StreamOperation> late = findLate(now)) {
    return Late{called(late->sequence(), late->name()), late->name(), late->sequence(),
                late->timeout()};
  }
  const milliseconds limit(callTimeout_);
  if (callAge(now) > limit) {
    const std::string_view op = toString(callOp_);
    const uint64_t sequence = issued() + 1;
    return Late{called(sequence, op) + " for which connections are made,", op, sequence, limit};
  }
  if (running_ && running_->deadline() <= now) {
    const Replays::Running& one = *running_;
    return Late{called(one.sequence, one.name) + " in a replay of its graph,", one.name,
                one.sequence, one.timeout};
  }
  return std::nullopt;
}

void Group::lookAtDeadlines(Clock::time_point now) {
  const std::optional<Late> late = findLateCall(now);
  if (!late) return verdict_.reset();
  const auto give = [&](const OutOfBand::Missing& missing) {
    std::string found;
    if (missing) {
      found = missing->empty() ? "; all ranks wait in it"
                               : "; not waiting in it: rank " + ctran::listed(*missing);
    }
    const ctran::Error error = timedOut(late->what, late->timeout);
    breakWith(ctran::Error(ErrorKind::Timeout,
                           late->what + " has not ended within " +
                               std::to_string(late->timeout.count()) + " ms" + found,
                           missing.value_or(std::vector<int>()), std::string(late->op),
                           error.hint()));
  };
  if (!setup_.outOfBand) return give(std::nullopt);
  if (!verdict_ || verdict_->sequence != late->sequence) {
    verdict_ = Verdict{late->sequence, now + kMissingPatience + kStorePatience,
                       setup_.outOfBand->findMissing(late->sequence, kMissingPatience)};
  }
  if (verdict_->answer.wait_for(milliseconds(0)) == std::future_status::ready) {
    const OutOfBand::Missing missing = verdict_->answer.get();
    verdict_.reset();
    give(missing);
  } else if (now > verdict_->until) {
    give(std::nullopt);
  }
}

bool Group::waitsLong(Clock::time_point now) {
  if (hasPrograms()) return true;
  if (callAge(now) > kOutOfBandInterval) return true;
  if (running_ && now - running_->since > kOutOfBandInterval) return true;
  const std::lock_guard lock(streamsMutex_);
  return std::any_of(streams_.begin(), streams_.end(), [&](const OneStream& one) {
    return !one.operations.empty() && now - one.operations.front()->start() > kOutOfBandInterval;
  });
}

void Group::checkOutOfBand(Clock::time_point now) {
  if (news_.valid()) {
    if (news_.wait_for(milliseconds(0)) != std::future_status::ready) return;
    const OutOfBand::News news = news_.get();
    if (news.error) return breakWith(*news.error, /*tellOthers=*/false);
    if (news.dead.empty() || !waitsLong(now)) return;
    breakWith(ctran::Error(ErrorKind::PeerLost,
                           "Rank " + ctran::listed(news.dead) + " of communicator '" + setup_.name +
                               "' has died; an operation of rank " + std::to_string(rank()) +
                               " waits for it",
                           news.dead, {}, "look at what that rank has written"));
  } else if (now - newsAsked_ >= kOutOfBandInterval && waitsLong(now)) {
    newsAsked_ = now;
    news_ = setup_.outOfBand->read(kWatchPeers.get());
  }
}

}  // namespace torch::comms::nccl
