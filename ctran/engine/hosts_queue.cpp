#include "ctran/engine/hosts_queue.h"

#include <utility>

#include "ctran/base/checked.h"
#include "ctran/base/log.h"
#include "ctran/collective/mismatch.h"
#include "ctran/collective/plan/run.h"
#include "ctran/collective/signature.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/roll_call.h"

namespace ctran {
namespace {

constexpr int64_t kGraceNanos = 500'000'000;

/// The tuning table that all ranks go by: the one that rank 0 finds.
std::string tuningTableText(int rank, const HostMap& map) {
  if (rank != 0) return {};
  const TuningTable table = TuningTable::load(map.size(), {}, map.shape());
  if (table.entries.empty()) return {};
  std::string text = table.toJson().print();
  if (text.size() <= StartBarrier::kLongest) return text;
  log(LogComponent::Engine, LogLevel::Warn, "ignored a tuning table of %zu bytes", text.size());
  return {};
}

}  // namespace

HostsQueue::HostsQueue(Core& core, Transport& transport, const HostMap& map, Arena* arena,
                       Selector selector)
    : CollectiveQueue(core, std::move(selector)),
      call_(core.board, transport, this->selector.hash()),
      hosts_(call_, map, arena),
      start_{hosts_, {}, {}} {}

void HostsQueue::agree(Communicator& communicator, WaitHooks* hooks) {
  start_.text = tuningTableText(core.rank(), hosts_.map);
  Collective barrier;
  barrier.kind = CollectiveKind::Barrier;
  communicator.run(barrier, {}, hooks);
  if (start_.text.empty()) return;
  try {
    selector.use(TuningTable::fromJson(Json::parse(start_.text, "what rank 0 says")));
  } catch (const Error& error) {
    throw core.fail(
        Error(ErrorKind::Mismatch,
              std::string("rank 0 tells a tuning table that is none: ") + printable(error.what()),
              {0}, "new_comm"));
  }
}

Task HostsQueue::start(const Collective& collective) {
  // Others may have given up meanwhile. What they sent before is here as well, and would do.
  core.poll();
  core.throwIfFailed();
  call_.begin(collective);
  inPlan_ = collective.plan != nullptr;
  if (inPlan_) {
    chosePlan(*collective.plan);
    return runPlan(hosts_, collective);
  }
  if (collective.onRail) return hosts_.startOnRails(collective);
  if (collective.rows) return exchangeRows(hosts_.beginRows(), collective);
  if (call_.sequence() == kCreation) return startBarrier(start_, collective);
  const Algorithm& algorithm = selector.choose(collective);
  chose(selector.recorded());
  return hosts_.start(algorithm, collective);
}

void HostsQueue::checkPeers() { checkSignatures(core.board, call_.sequence(), call_.signature()); }

/// How much longer this rank waits than its deadline, so that a rank which knows better who is to
/// blame reports first. A rank of another host may be late because it waits for a rank of its own
/// host. A rank of this host that has called may wait for a rank of another host. In a plan any
/// rank that has called may wait for any other.
int64_t HostsQueue::graceNanos(const Condition& waiting) const {
  const int rank = awaitedOf(waiting);
  if (rank < 0) return 0;
  if (inPlan_ && hasCome(rank)) return kGraceNanos;
  if (!hosts_.isShared()) return 0;
  if (hosts_.map.hostOf(rank) != hosts_.map.host()) return kGraceNanos;
  return hasCome(rank) ? 2 * kGraceNanos : 0;  // that neighbour speaks first
}

bool HostsQueue::hasCome(int rank) const {
  const Board::Control* const control = core.board.find(rank);
  return control != nullptr && control->begun.load(std::memory_order_acquire) >= call_.sequence();
}

/// For whom this rank waits: of several one that has not come, rather than one that has.
int HostsQueue::awaitedOf(const Condition& waiting) const {
  for (int i = 0; i < waiting.alternativeCount; ++i) {
    const int rank = waiting.alternatives[i].awaited();
    if (!hasCome(rank)) return rank;
  }
  return waiting.alternativeCount > 0 ? waiting.alternatives[0].awaited() : waiting.awaited();
}

Error HostsQueue::timeoutError(const Collective& collective, const Condition& waiting,
                               int64_t timeoutNanos) {
  const int rank = awaitedOf(waiting);
  const int64_t silent = rank < 0 ? 0 : call_.transport.silentNanos(rank);
  return remoteTimeout(core, collective, call_.sequence(), rank, timeoutNanos, silent);
}

Task NetSendQueue::start(const Collective& collective) {
  begin(collective);
  return sendOverNet(channel_, collective);
}

}  // namespace ctran
