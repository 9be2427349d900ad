#include "ctran/engine/local_communicator.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "ctran/base/log.h"
#include "ctran/collective/registry.h"
#include "ctran/engine/say_all.h"
#include "ctran/os/process.h"
#include "ctran/os/process_memory.h"
#include "ctran/select/plans.h"
#include "ctran/topology/host.h"

namespace ctran {
namespace {

std::vector<int> allRanks(int size) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

bool isNative(CollectiveKind kind, std::string_view name) {
  return findAlgorithm(AlgorithmPlace::SharedMemory, kind, name) != nullptr;
}

}  // namespace

LocalCommunicator::LocalCommunicator(const CommunicatorOptions& options, HostGroup group)
    : LaneCommunicator(options, arena_, options.size),
      arena_(SharedMapping::map(group.memory, Arena::bytesFor(options.size)), options.rank,
             options.size),
      hint_(hintedPreferences(options.hints)),
      inRankOrder_(wantsRankOrder(options.hints)),
      watch_(allRanks(options.size), std::move(group)),
      collectives_(core_, arena_) {}

void LocalCommunicator::start(WaitHooks* hooks) {
  arena_.control(rank()).state.store(Arena::RankState::Alive, std::memory_order_release);
  watch_.start(shared_from_this());
  agree(hooks);
}

/// Sees whether this rank can read the memory of all others, and whether that is likely to be
/// faster than through shared memory: where there are many cores, data takes longer from one to
/// another.
void LocalCommunicator::tryReading(const std::vector<Memory>& memories) {
  constexpr size_t kManyCores = 8;
  bool can = true;
  std::vector<int> processes;
  for (const Memory& memory : memories) {
    processes.push_back(memory.process);
    uint64_t found = 0;
    const int error = readProcessMemory(memory.process, memory.at,
                                        reinterpret_cast<std::byte*>(&found), sizeof found);
    can = can && error == 0 && found == memory.token;
  }
  uint32_t reading = 0;
  if (can) reading |= Board::kCanRead;
  if (thisHost().cores.size() >= kManyCores) reading |= Board::kReadingPays;
  collectives_.offerReading(std::move(processes), reading);
}

/// Waits until all ranks are here, and sees whether they would choose the same algorithms.
void LocalCommunicator::agree(WaitHooks* hooks) {
  const Preferences user = userPreferences();
  TuningTable table = TuningTable::load(size());
  struct Basis {
    uint64_t preferences, table;
    Memory memory;
  };
  fillRandom(reinterpret_cast<std::byte*>(&token_), sizeof token_);
  const Basis own{std::hash<std::string>()(hint_.text() + ";" + user.text()),
                  table.hash(),
                  {getpid(), reinterpret_cast<const std::byte*>(&token_), token_}};
  const std::vector<Basis> all = sayAll(*this, own, {}, hooks);
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
  std::vector<Memory> memories;
  for (const Basis& one : all) memories.push_back(one.memory);
  tryReading(memories);
  findPlans(user);
  collectives_.selector.prefer(hint_, user);
  if (sameTable) {
    collectives_.selector.use(std::move(table));
  } else if (rank() == 0) {
    log(LogLevel::Warn, "the ranks of '%s' have different tuning tables; none is used",
        name().c_str());
  }
}

/// Of algorithms that are named and shared memory does not have, the library may have a plan.
void LocalCommunicator::findPlans(const Preferences& user) {
  for (size_t k = 0; size() > 1 && k < plans_.size(); ++k) {
    const auto kind = static_cast<CollectiveKind>(k);
    const auto find = [&](const Preferences& wanted, const char* why) {
      for (const std::string_view name : wanted.namesFor(kind)) {
        const bool native = isNative(kind, name);
        auto plan = native ? nullptr : libraryPlan(kind, name, size());
        if (plan) plans_[k] = {std::string(name), why, std::move(plan)};
        if (native || plans_[k].plan) return true;
      }
      return false;
    };
    if (!find(hint_, kByHint)) find(user, kByUser);
  }
}

/// The plan that a hint of the call names: unless shared memory has an algorithm that is named
/// before it and can serve.
std::shared_ptr<const PlanAlgorithm> LocalCommunicator::hintedPlan(const Collective& c) const {
  if (static_cast<size_t>(c.kind) >= plans_.size() || size() == 1) return nullptr;
  for (const std::string_view name : c.hints->preferences.namesFor(c.kind)) {
    if (isNative(c.kind, name)) return nullptr;
    auto [known, isNew] = hintedPlans_.try_emplace({c.kind, std::string(name)});
    if (isNew) known->second = libraryPlan(c.kind, name, size());
    if (known->second && known->second->whyNot(c, size()).empty()) return known->second;
  }
  return nullptr;
}

std::shared_ptr<const PlanAlgorithm> LocalCommunicator::namedPlan(const Collective& c) const {
  const bool alone = c.hints && c.hints->alone;
  const bool inRankOrder = (inRankOrder_ && !alone) || (c.hints && c.hints->inRankOrder);
  const bool reorders = inRankOrder && isReduction(c.kind);
  if (c.hints && !reorders) {
    if (auto plan = hintedPlan(c)) return plan;
    if (alone || c.hints->preferences.of(c.kind) != nullptr) return nullptr;
  }
  const auto kind = static_cast<size_t>(c.kind);
  if (kind >= plans_.size() || !plans_[kind].plan) return nullptr;
  const auto& plan = plans_[kind].plan;
  return reorders || !plan->whyNot(c, size()).empty() ? nullptr : plan;
}

Explanation LocalCommunicator::explainNative(CollectiveKind kind, size_t bytes, DataType type,
                                             const CallHints* hints) const {
  Explanation explanation = collectives_.selector.explain(kind, bytes, true, hints);
  Collective call;
  call.kind = kind;
  call.type = type;
  if (hints != nullptr) call.hints = std::make_shared<CallHints>(*hints);
  const auto plan = namedPlan(call);
  if (plan && hints != nullptr && plan != plans_[static_cast<size_t>(kind)].plan) {
    explanation.algorithm = hints->preferences.namesFor(kind).front();
    explanation.why = std::string(kByHint) + ", by the plan " + plan->plan().name;
  } else if (plan) {
    const NamedPlan& named = plans_[static_cast<size_t>(kind)];
    explanation.algorithm = named.algorithm;
    explanation.why = named.why + ", by the plan " + named.plan->plan().name;
  }
  return explanation;
}

TuningTable LocalCommunicator::tune(const TuneOptions& options) {
  Collective barrier;
  barrier.kind = CollectiveKind::Barrier;
  for (int i = 0; i < 2; ++i) run(barrier, {}, nullptr);  // now all know what all can do
  return tuneWith(collectives_.selector, {}, options);
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
