#include "ctran/engine/local_communicator.h"

#include <functional>
#include <numeric>

#include "ctran/base/log.h"
#include "ctran/select/plans.h"

namespace ctran {
namespace {

std::vector<int> allRanks(int size) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::string hintOf(const CommunicatorOptions& options) {
  const auto hint = options.hints.find("ctran::algorithm");
  return hint == options.hints.end() ? std::string() : hint->second;
}

}  // namespace

LocalCommunicator::LocalCommunicator(const CommunicatorOptions& options, HostGroup group)
    : LaneCommunicator(options, arena_, options.size),
      arena_(SharedMapping::map(group.memory, Arena::bytesFor(options.size)), options.rank,
             options.size),
      hint_(hintOf(options), "the hint ctran::algorithm"),
      watch_(allRanks(options.size), std::move(group)),
      collectives_(core_, arena_) {}

void LocalCommunicator::start(WaitHooks* hooks) {
  arena_.control(rank()).state.store(Arena::RankState::Alive, std::memory_order_release);
  watch_.start(shared_from_this());
  agree(hooks);
}

/// Waits until all ranks are here, and sees whether they would choose the same algorithms.
void LocalCommunicator::agree(WaitHooks* hooks) {
  const Preferences user = userPreferences();
  TuningTable table = TuningTable::load(size());
  struct Basis {
    uint64_t preferences, table;
  };
  const Basis own{std::hash<std::string>()(hint_.text() + ";" + user.text()), table.hash()};
  std::vector<Basis> all(size());
  Collective exchange;
  exchange.kind = CollectiveKind::AllGather;
  exchange.type = DataType::Opaque8;
  exchange.count = sizeof own / 8;
  exchange.input = reinterpret_cast<const std::byte*>(&own);
  exchange.output = reinterpret_cast<std::byte*>(all.data());
  run(exchange, {}, hooks);
  bool sameTable = true;
  for (int r = 0; r < size(); ++r) {
    if (all[r].preferences != own.preferences) {
      throw core_.fail(
          Error(ErrorKind::Mismatch,
                "ranks " + std::to_string(r) + " and " + std::to_string(rank()) + " of '" + name() +
                    "' prefer different algorithms",
                {r, rank()}, "new_comm",
                "set the hint ctran::algorithm and CTRAN_ALGORITHM alike on all ranks"));
    }
    sameTable &= all[r].table == own.table;
  }
  collectives_.selector.prefer(hint_, user);
  if (sameTable) {
    collectives_.selector.use(std::move(table));
  } else if (rank() == 0) {
    log(LogLevel::Warn, "the ranks of '%s' have different tuning tables; none is used",
        name().c_str());
  }
}

Explanation LocalCommunicator::explain(CollectiveKind kind, size_t bytes) const {
  Collective call;
  call.kind = kind;
  call.type = DataType::UInt8;
  call.count = bytes;
  const auto plan = choosePlan(call, size(), name());
  Explanation explanation = collectives_.selector.explain(kind, bytes);
  if (plan) {
    explanation.algorithm = "plan " + plan->plan().name;
    explanation.why = "a plan is registered for it";
  }
  return explanation;
}

TuningTable LocalCommunicator::tune(const TuneOptions& options) {
  TuningTable table = ctran::tune(
      size(), collectives_.selector, [this](const Collective& call) { run(call, {}, nullptr); },
      options);
  if (rank() == 0 && size() > 1) table.save();
  return table;
}

std::unique_ptr<Lane> LocalCommunicator::makeSendLane(int peer) {
  return std::make_unique<ShmSendLane>(core_, arena_, peer);
}

std::unique_ptr<Mailbox> LocalCommunicator::makeMailbox(int peer) {
  return std::make_unique<ShmMailbox>(arena_, peer);
}

std::vector<int> LocalCommunicator::neighbours() const { return allRanks(size()); }

LocalCommunicator::~LocalCommunicator() {
  if (core_.belongsHere()) leave();
  forgetLanes();
}

void LocalCommunicator::leave() {
  watch_.stop();
  auto& state = arena_.control(rank()).state;
  if (state.exchange(Arena::RankState::Left, std::memory_order_seq_cst) != Arena::RankState::Left) {
    arena_.wakeAll();
  }
}

}  // namespace ctran
