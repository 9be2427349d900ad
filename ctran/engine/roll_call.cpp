#include "ctran/engine/roll_call.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "ctran/base/rank_list.h"
#include "ctran/collective/signature.h"

namespace ctran {
namespace {

std::string secondsText(int64_t nanos) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", static_cast<double>(nanos) * 1e-9);
  return text;
}

std::string list(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + listed(ranks);
}

std::string rollCall(Core& core) {
  std::string text;
  for (const int r : core.board.known()) {
    text += "\n    rank " + std::to_string(r) + ": " + lastOperation(core, r);
  }
  return text;
}

std::string prefix(Core& core, const Collective& collective, int64_t timeoutNanos) {
  return collective.describe() + " on communicator '" + core.name + "' timed out after " +
         secondsText(timeoutNanos) + " on rank " + std::to_string(core.rank()) + ": ";
}

/// The collective that a rank is in, as far as is known.
uint64_t begunBy(Core& core, int rank) {
  const Board::Control* const control = core.board.find(rank);
  return control == nullptr ? 0 : control->begun.load(std::memory_order_acquire);
}

/// The first rank of those that have begun the least, if that is less than `limit`; else -1. Of a
/// rank that nothing is known of that is nothing.
int furthestBehind(Core& core, uint64_t limit) {
  int behind = -1, next = 0;
  uint64_t least = limit;
  for (const int r : core.board.known()) {
    if (r != next && least > 0) return next;
    next = r + 1;
    const uint64_t begun = begunBy(core, r);
    if (begun >= least) continue;
    least = begun;
    behind = r;
  }
  return next < core.size() && least > 0 ? next : behind;
}

/// The rank for which another one waits in what it did last; -1 if for none.
int awaitedBy(Core& core, int rank) {
  const Board::Control& control = core.board.control(rank);
  const auto message = control.messages.last();
  if (message && message->state == OperationRecord::State::Running) {
    const int peer = peerOf(*message);
    return peer < core.size() ? peer : -1;
  }
  const auto collective = control.collectives.last();
  if (!collective || collective->state != OperationRecord::State::Running) return -1;
  return furthestBehind(core, collective->sequence);
}

/// A rank, the one for which it waits itself, and so on, as far as the ranks of this host say.
std::vector<int> chainFrom(Core& core, int rank) {
  std::vector<int> chain{rank};
  while (core.board.isShared(chain.back())) {
    const int next = awaitedBy(core, chain.back());
    const bool closes =
        next == core.rank() || std::find(chain.begin(), chain.end(), next) != chain.end();
    if (next < 0 || closes) break;
    chain.push_back(next);
  }
  return chain;
}

constexpr const char* kNothing = "no operation yet";
constexpr const char* kHint =
    "see where the named ranks are (py-spy dump), or raise the timeout if they are only slow";

}  // namespace

std::string lastOperation(Core& core, int rank) {
  const Board::Control* const known = core.board.find(rank);
  if (known == nullptr) return kNothing;
  const Board::Control& control = *known;
  const auto text = [](const char* what, const OperationRecord& record) {
    const bool completed = record.state == OperationRecord::State::Completed;
    return what + describe(record) + (completed ? ", completed" : ", not completed");
  };
  const auto collective = control.collectives.last();
  const auto message = control.messages.last();
  std::string all;
  if (collective && collective->sequence > kCreation) {
    all = text("last collective ", *collective);
  }
  if (message) all += (all.empty() ? "" : "; ") + text("last message ", *message);
  return all.empty() ? kNothing : all;
}

Error collectiveTimeout(Core& core, const Collective& collective, uint64_t sequence, int waitedFor,
                        int64_t timeoutNanos) {
  std::vector<int> missing, furthest;  // furthest: those of them who hold up the others of them
  uint64_t least = sequence;
  for (int r = 0; r < core.size(); ++r) {
    const uint64_t begun = begunBy(core, r);
    if (begun >= sequence) continue;
    missing.push_back(r);
    if (begun < least) furthest.clear();
    least = std::min(least, begun);
    if (begun == least) furthest.push_back(r);
  }
  std::string message = prefix(core, collective, timeoutNanos);
  if (missing.empty()) {
    missing.push_back(waitedFor);
    message += "all ranks have called it, but " + list(missing) + " makes no progress";
  } else {
    message += list(missing) + (missing.size() == 1 ? " has" : " have") + " not called it";
    if (furthest.size() < missing.size()) {
      message += "; furthest behind: " + list(furthest);
      missing = furthest;
    }
  }
  return Error(ErrorKind::Timeout, message + rollCall(core), missing, collective.describe(), kHint);
}

Error remoteTimeout(Core& core, const Collective& collective, uint64_t sequence, int waitedFor,
                    int64_t timeoutNanos, int64_t silentNanos) {
  const uint64_t begun = begunBy(core, waitedFor);
  // For about as long as the operation: the host, or the way to it, is gone.
  if (silentNanos > timeoutNanos / 2) {
    const std::string rank = list({waitedFor});
    return Error(ErrorKind::Timeout,
                 prefix(core, collective, timeoutNanos) + "nothing has come from the host of " +
                     rank + " for " + secondsText(silentNanos) +
                     ", and what was sent there is not acknowledged",
                 {waitedFor}, collective.describe(), "see the network between the hosts");
  }
  std::string message = prefix(core, collective, timeoutNanos) + list({waitedFor}) +
                        (begun >= sequence ? " has called it, but makes no progress"
                                           : " has not called it, or waits for others") +
                        "; what this rank has heard:";
  if (core.board.find(waitedFor) == nullptr) {
    message += "\n    rank " + std::to_string(waitedFor) + ": " + kNothing;
  }
  for (const int r : core.board.known()) {
    const std::string heard = lastOperation(core, r);
    if (heard != kNothing || r == waitedFor) {
      message += "\n    rank " + std::to_string(r) + ": " + heard;
    }
  }
  return Error(ErrorKind::Timeout, message, {waitedFor}, collective.describe(), kHint);
}

Error channelTimeout(Core& core, const Collective& collective, int64_t timeoutNanos) {
  const bool sends = collective.kind == CollectiveKind::Send;
  if (collective.root == kAnyRank) {
    std::vector<int> others;
    for (int r = 0; r < core.size(); ++r) {
      if (r != core.rank()) others.push_back(r);
    }
    return Error(ErrorKind::Timeout,
                 prefix(core, collective, timeoutNanos) + "no rank has sent it" + rollCall(core),
                 others, collective.describe(), kHint);
  }
  const std::vector<int> chain = chainFrom(core, collective.root);
  std::string message = prefix(core, collective, timeoutNanos) + list({chain[0]}) +
                        (sends ? " has not received it" : " has not sent it");
  for (size_t i = 1; i < chain.size(); ++i) {
    message += (i == 1 ? ", and waits for " : ", which waits for ") + list({chain[i]});
  }
  return Error(ErrorKind::Timeout, message + rollCall(core), chain, collective.describe(), kHint);
}

Error waitTimeout(Core& core, const Collective& collective, const std::string& what, int waitedFor,
                  int64_t timeoutNanos) {
  std::vector<int> ranks;
  if (waitedFor >= 0) ranks.push_back(waitedFor);
  return Error(ErrorKind::Timeout, prefix(core, collective, timeoutNanos) + what + " has not come",
               ranks, collective.describe(), kHint);
}

Error deathError(Core& core, const std::vector<int>& ranks, int pid) {
  std::string message =
      list(ranks) + " (pid " + std::to_string(pid) + ") of communicator '" + core.name + "' died; ";
  for (const int r : ranks) message += (r == ranks[0] ? "" : "; ") + lastOperation(core, r);
  return Error(ErrorKind::PeerLost, message, ranks, {},
               "see its output for the reason; make a new communicator to go on");
}

}  // namespace ctran
