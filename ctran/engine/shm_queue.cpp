#include "ctran/engine/shm_queue.h"

#include <unistd.h>

#include "ctran/base/log.h"
#include "ctran/collective/plan/run.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/exchange_all.h"
#include "ctran/engine/roll_call.h"
#include "ctran/os/process.h"
#include "ctran/os/process_memory.h"
#include "ctran/topology/host.h"

namespace ctran {
namespace {

/// Returns whether a line that one rank has written is likely to lie in a cache of those who read
/// it: on the few cores of one complex of AMD's, or where ranks take turns on a core. Elsewhere it
/// has to be fetched from the core that wrote it, and before that from those that read it last.
/// What the system says of caches is of no use: a virtual machine reports one for all cores.
bool shareCaches(int ranks, const Host& host) {
  constexpr size_t kMostOfAComplex = 7;
  const size_t cores = host.cores.size();
  if (cores > kMostOfAComplex) return false;
  return cores < static_cast<size_t>(ranks) || host.cpuModel.starts_with("AMD");
}

}  // namespace

ShmQueue::ShmQueue(Core& core, Arena& arena)
    : CollectiveQueue(core, Selector(arena.size())),
      shm_(arena),
      map_(std::vector<std::string>(arena.size()), arena.rank(), arena.size()),
      rows_(map_, nullptr, &shm_) {}

Task ShmQueue::start(const Collective& collective) {
  if (readingIsOpen_) agreeOnReading(collective);
  shm_.begin(collective);
  if (collective.rows) return exchangeRows(rows_, collective);
  if (collective.plan) {
    chosePlan(*collective.plan);
    return collective.plan->function() != nullptr ? runFunction(shm_, *functions, collective)
                                                  : runPlan(shm_, collective);
  }
  const Algorithm& algorithm = selector.choose(collective);
  chose(selector.recorded());
  return std::get<ShmAlgorithm>(algorithm.run)(shm_, collective);
}

void ShmQueue::agree(Communicator& communicator, WaitHooks* hooks) {
  TuningTable table = TuningTable::load(shm_.size);
  struct Basis {
    uint64_t preferences, table;
    Memory memory;
  };
  fillRandom(reinterpret_cast<std::byte*>(&token_), sizeof token_);
  const Basis own{selector.hash(),
                  table.hash(),
                  {getpid(), reinterpret_cast<const std::byte*>(&token_), token_}};
  const std::vector<Basis> all = exchangeAll(communicator, own, {}, hooks);
  bool sameTable = true;
  std::vector<Memory> memories;
  for (int r = 0; r < shm_.size; ++r) {
    if (all[r].preferences != own.preferences) {
      throw core.fail(
          Error(ErrorKind::Mismatch,
                "ranks " + std::to_string(r) + " and " + std::to_string(shm_.rank) + " of '" +
                    core.name + "' prefer different algorithms",
                {r, shm_.rank}, "new_comm",
                "set the hints ctran::algorithm and ctran::deterministic, and CTRAN_ALGORITHM, "
                "alike on all ranks"));
    }
    sameTable &= all[r].table == own.table;
    memories.push_back(all[r].memory);
  }
  tryReading(memories);
  if (sameTable) {
    selector.use(std::move(table));
  } else if (shm_.rank == 0) {
    log(LogComponent::Engine, LogLevel::Warn,
        "the ranks of '%s' have different tuning tables; none is used", core.name.c_str());
  }
}

/// Sees whether this rank can read the memory of all others, and whether that is likely to be
/// faster than through shared memory.
void ShmQueue::tryReading(std::span<const Memory> memories) {
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
  if (!shareCaches(shm_.size, thisHost())) reading |= Board::kReadingPays;
  shm_.processes = std::move(processes);
  shm_.arena.control(shm_.rank).reading.store(reading, std::memory_order_release);
  readingIsOpen_ = true;
}

/// Decides whether ranks read each other's memory. Every rank publishes what it can do before it
/// begins a collective. So every rank knows it of all ranks after the first collective in which all
/// have waited for all, and that is the same collective on all ranks.
void ShmQueue::agreeOnReading(const Collective& c) {
  using Kind = CollectiveKind;
  if (readingIsKnown_) {
    std::string whyNot;
    bool pays = true;
    for (int r = 0; r < shm_.size; ++r) {
      const uint32_t reading = shm_.arena.control(r).reading.load(std::memory_order_acquire);
      pays = pays && (reading & Board::kReadingPays) != 0;
      if ((reading & Board::kCanRead) != 0 || !whyNot.empty()) continue;
      whyNot =
          "rank " + std::to_string(r) + " may not read the memory of the others (process_vm_readv)";
    }
    selector.useReading(std::move(whyNot), pays);
    readingIsOpen_ = false;
    return;
  }
  const bool waitsForAll = c.kind == Kind::AllReduce || c.kind == Kind::AllGather ||
                           c.kind == Kind::ReduceScatter || c.kind == Kind::AllToAll;
  readingIsKnown_ = c.kind == Kind::Barrier || (waitsForAll && c.count > 0 && !c.plan && !c.rows);
}

Error ShmQueue::timeoutError(const Collective& collective, const Condition& waiting,
                             int64_t timeoutNanos) {
  const Condition& one = waiting.alternatives == nullptr ? waiting : waiting.alternatives[0];
  const bool isFunction = collective.plan && collective.plan->function() != nullptr;
  if (isFunction && one.rank < 0) {  // all ranks have come
    Error error(ErrorKind::Timeout,
                "the algorithm '" + collective.plan->plan().name + "' has not ended within " +
                    std::to_string(timeoutNanos / 1'000'000) + " ms on rank " +
                    std::to_string(core.rank()),
                {core.rank()}, collective.describe());
    functions->group().end(error);
    return error;
  }
  const int rank = collective.plan && !isFunction ? planCulprit(shm_, collective, one) : one.rank;
  return collectiveTimeout(core, collective, shm_.sequence(), rank, timeoutNanos);
}

}  // namespace ctran
