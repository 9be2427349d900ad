#include "ctran/engine/local_communicator.h"

#include <pthread.h>

#include <algorithm>
#include <thread>

#include "ctran/base/clock.h"
#include "ctran/base/log.h"
#include "ctran/collective/premul.h"
#include "ctran/engine/patience.h"
#include "ctran/engine/peer_watcher.h"
#include "ctran/engine/progress.h"
#include "ctran/engine/roll_call.h"
#include "ctran/select/plans.h"

namespace ctran {
namespace {

// A child has none of the threads; locks that they held at that moment stay held in its copy, so it
// starts with fresh ones.
[[maybe_unused]] const int gAtFork = pthread_atfork(nullptr, nullptr, [] {
  Progress::forget();
  PeerWatcher::forget();
});

/// Longer ones are cut: that is three years, and sums with a clock do not overflow.
constexpr std::chrono::nanoseconds kLongest{100'000'000'000'000'000};

Deadline deadlineAfter(std::chrono::nanoseconds timeout) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<Deadline::duration>(std::min(timeout, kLongest));
}

/// What waits on sockets call now and then.
Interrupt interruptOf(WaitHooks* hooks) {
  if (hooks == nullptr) return nullptr;
  return [hooks] { hooks->interrupted(); };
}

HostGroup makeGroup(Leader& leader, int size, Deadline deadline, const Interrupt& interrupt) {
  return leader.gather(size, createSharedMemory("ctran", Arena::bytesFor(size)), deadline,
                       interrupt);
}

HostGroup lead(const CommunicatorOptions& options, const std::string& key, Deadline deadline,
               const Interrupt& interrupt) {
  Leader leader;
  if (options.size == 1) return makeGroup(leader, 1, deadline, interrupt);
  options.store->set(key, leader.address().serialize());
  try {
    HostGroup group = makeGroup(leader, options.size, deadline, interrupt);
    options.store->remove(key);  // everybody has read it; the name is free for another communicator
    return group;
  } catch (...) {
    try {
      options.store->remove(key);
    } catch (...) {
      // What went wrong first is what the user has to know.
    }
    throw;
  }
}

HostGroup follow(const CommunicatorOptions& options, const std::string& key, Deadline deadline,
                 const Interrupt& interrupt) {
  bool stale = false;
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    std::string text;
    try {
      text = options.store->get(key, std::max(left, std::chrono::milliseconds(0)));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Timeout) throw;
      throw Error(ErrorKind::Timeout,
                  "rank " + std::to_string(options.rank) + " waited for rank 0 of communicator '" +
                      options.name + "', which did not come (" + error.what() + ")",
                  {0}, "new_comm", "see whether it started, with the same name and store");
    }
    auto group = join(LeaderAddress::parse(text), options.rank, options.size, deadline, interrupt);
    if (group) return std::move(*group);
    // An address that an earlier run has left behind: rank 0 will replace it.
    if (left.count() <= 0) {
      throw Error(ErrorKind::Timeout,
                  "rank " + std::to_string(options.rank) + " waited for rank 0 of communicator '" +
                      options.name + "'; the store only holds the address of one that has ended",
                  {0}, "new_comm", "see whether rank 0 started; use a fresh store per run");
    }
    if (!stale) log(LogLevel::Debug, "the store holds a stale address of '%s'", key.c_str());
    stale = true;
    if (interrupt) interrupt();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

HostGroup rendezvous(const CommunicatorOptions& options, Deadline deadline,
                     const Interrupt& interrupt) {
  const std::string key = "ctran/" + options.name + "/leader";
  return options.rank == 0 ? lead(options, key, deadline, interrupt)
                           : follow(options, key, deadline, interrupt);
}

/// Bytes that posting may have to copy on the spot.
size_t bytesOf(const Collective& collective) {
  size_t count = collective.count;
  for (const Block& block : collective.inputs) count += block.count;
  for (const Block& block : collective.outputs) count += block.count;
  return count * sizeOf(collective.type);
}

}  // namespace

/// For the time of a call: one thread at a time.
class LocalCommunicator::Entered {
 public:
  explicit Entered(LocalCommunicator& communicator) : communicator_(communicator) {
    Core& core = communicator.core_;
    if (communicator.finalized_.load(std::memory_order_relaxed)) {
      throw Error(ErrorKind::InvalidArgument, "communicator '" + core.name + "' is finalized");
    }
    if (!core.belongsHere()) throw core.forkError();
    core.throwIfFailed();
    // Not an exchange, which would cost every call: this finds most of the mistakes.
    if (communicator.entered_.load(std::memory_order_relaxed)) {
      throw Error(ErrorKind::InvalidArgument,
                  "two threads use communicator '" + core.name + "' at the same time", {}, {},
                  "give every thread a communicator of its own, or take turns");
    }
    communicator.entered_.store(true, std::memory_order_relaxed);
  }
  ~Entered() { communicator_.entered_.store(false, std::memory_order_relaxed); }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  LocalCommunicator& communicator_;
};

std::shared_ptr<Communicator> Communicator::create(const CommunicatorOptions& options,
                                                   WaitHooks* hooks) {
  if (options.size < 1 || options.size > Arena::kMaxRanks) {
    throw Error(ErrorKind::InvalidArgument, "a communicator has 1 to " +
                                                std::to_string(Arena::kMaxRanks) + " ranks, not " +
                                                std::to_string(options.size));
  }
  if (options.rank < 0 || options.rank >= options.size) {
    throw Error(ErrorKind::InvalidArgument, "rank " + std::to_string(options.rank) +
                                                " is not in [0, " + std::to_string(options.size) +
                                                ")");
  }
  if (options.size > 1 && !options.store) {
    throw Error(ErrorKind::InvalidArgument, "ranks need a store to find each other");
  }
  if (options.timeout <= std::chrono::nanoseconds(0)) {
    throw Error(ErrorKind::InvalidArgument, "the timeout of a communicator must be positive");
  }
  HostGroup group = rendezvous(options, deadlineAfter(options.timeout), interruptOf(hooks));
  auto communicator = std::make_shared<LocalCommunicator>(options, std::move(group));
  communicator->start(hooks);
  return communicator;
}

LocalCommunicator::LocalCommunicator(const CommunicatorOptions& options, HostGroup group)
    : core_(options.name, SharedMapping::map(group.memory, Arena::bytesFor(options.size)),
            options.rank, options.size),
      pids_(std::move(group.pids)),
      processes_(std::move(group.processes)),
      pidFds_(std::move(group.brought)),
      timeoutNanos_(std::min(options.timeout, kLongest).count()),
      collectives_(core_),
      channels_(2 * options.size) {}

void LocalCommunicator::start(WaitHooks* hooks) {
  core_.arena.control(rank()).state.store(Arena::RankState::Alive, std::memory_order_release);
  watchPeers();
  Collective barrier;
  barrier.kind = CollectiveKind::Barrier;
  run(barrier, {}, hooks);
}

void LocalCommunicator::watchPeers() {
  for (int r = 0; r < size(); ++r) {
    const auto first = std::find(processes_.begin(), processes_.end(), processes_[r]);
    if (processes_[r] == processes_[rank()] || first - processes_.begin() != r) continue;
    std::vector<int> ranks;  // the threads of that process
    for (int other = r; other < size(); ++other) {
      if (processes_[other] == processes_[r]) ranks.push_back(other);
    }
    const std::weak_ptr<LocalCommunicator> weak = weak_from_this();
    watches_.push_back(PeerWatcher::watch(pidFds_[r], [weak, ranks] {
      const auto self = weak.lock();
      if (!self) return;
      std::vector<int> lost;
      for (const int rank : ranks) {
        const auto& state = self->core_.arena.control(rank).state;
        if (state.load(std::memory_order_acquire) != Arena::RankState::Left) lost.push_back(rank);
      }
      if (lost.empty()) return;
      self->core_.fail(deathError(self->core_, lost, self->pids_[lost[0]]));
      Progress::poke(Progress::When::Soon);
    }));
  }
  pidFds_.clear();
}

LocalCommunicator::~LocalCommunicator() {
  if (core_.belongsHere()) leave();
  for (const auto& channel : channels_) delete channel.load(std::memory_order_acquire);
}

std::chrono::nanoseconds LocalCommunicator::timeout() const {
  return std::chrono::nanoseconds(timeoutNanos_.load(std::memory_order_relaxed));
}

void LocalCommunicator::setTimeout(std::chrono::nanoseconds timeout) {
  if (timeout <= std::chrono::nanoseconds(0)) {
    throw Error(ErrorKind::InvalidArgument, "the timeout of a communicator must be positive");
  }
  timeoutNanos_.store(std::min(timeout, kLongest).count(), std::memory_order_relaxed);
}

int64_t LocalCommunicator::nanosOr(std::chrono::nanoseconds timeout) const {
  if (timeout < std::chrono::nanoseconds(0)) {
    throw Error(ErrorKind::InvalidArgument, "a timeout must not be negative");
  }
  if (timeout.count() == 0) return timeoutNanos_.load(std::memory_order_relaxed);
  return std::min(timeout, kLongest).count();
}

Lane& LocalCommunicator::laneFor(const Collective& collective) {
  if (collective.kind != CollectiveKind::Send && collective.kind != CollectiveKind::Recv) {
    return collectives_;
  }
  return messageLane(collective.root, collective.kind == CollectiveKind::Send);
}

Lane& LocalCommunicator::messageLane(int peer, bool sends) {
  std::atomic<ChannelLane*>& channel = channels_[2 * peer + (sends ? 1 : 0)];
  if (channel.load(std::memory_order_acquire) == nullptr) {
    channel.store(new ChannelLane(core_, peer, sends), std::memory_order_release);
  }
  return *channel.load(std::memory_order_acquire);
}

void LocalCommunicator::run(const Collective& collective, std::chrono::nanoseconds timeout,
                            WaitHooks* hooks) {
  const Entered entered(*this);
  validate(collective, rank(), size());
  const int64_t nanos = nanosOr(timeout);
  Lane& lane = laneFor(collective);
  if (!lane.idle()) {
    // The caller's buffers outlive this call, or the communicator is broken by then.
    const auto operation = enqueue(lane, collective, nanos, nullptr);
    try {
      return operation->wait(hooks);
    } catch (const Error&) {
      throw;
    } catch (...) {
      abort("interrupted in " + collective.describe());
      while (!operation->done()) progress();  // ends at once; the buffers are the caller's again
      throw;
    }
  }
  auto plan = choosePlan(collective, size(), name());
  if (collective.op.kind != ReduceKind::PremulSum && !plan) {
    return lane.run(collective, nanos, hooks);
  }
  Collective scaled = collective;
  scaled.plan = std::move(plan);
  const std::vector<std::byte> scratch = applyPremul(scaled, size());
  lane.run(scaled, nanos, hooks);
}

std::shared_ptr<Work> LocalCommunicator::post(Collective collective,
                                              std::chrono::nanoseconds timeout,
                                              std::shared_ptr<void> keepAlive) {
  const Entered entered(*this);
  validate(collective, rank(), size());
  const int64_t nanos = nanosOr(timeout);
  Lane& lane = laneFor(collective);
  return enqueue(lane, std::move(collective), nanos, std::move(keepAlive));
}

std::shared_ptr<Operation> LocalCommunicator::enqueue(Lane& lane, Collective collective,
                                                      int64_t timeoutNanos,
                                                      std::shared_ptr<void> keepAlive) {
  collective.plan = choosePlan(collective, size(), name());
  std::vector<std::byte> scratch = applyPremul(collective, size());
  // What is small starts, and often ends, right here; the peers need not wait for another thread.
  const bool startsHere = lane.idle() && bytesOf(collective) <= Arena::kSlotDataBytes;
  auto operation =
      std::make_shared<Operation>(lane, shared_from_this(), std::move(collective),
                                  std::move(scratch), std::move(keepAlive), timeoutNanos);
  lane.push(operation);
  if (startsHere) lane.advance();
  if (!lane.idle()) {
    Progress::activate(shared_from_this(),
                       startsHere ? Progress::When::Lazily : Progress::When::Soon);
  }
  return operation;
}

Lane& LocalCommunicator::addLane(std::unique_ptr<Lane> lane) {
  added_.push_back(std::move(lane));
  return *added_.back();
}

std::shared_ptr<Work> LocalCommunicator::submit(Lane& lane, Collective collective,
                                                std::chrono::nanoseconds timeout,
                                                std::shared_ptr<void> keepAlive, bool lazily) {
  if (!core_.belongsHere()) throw core_.forkError();
  core_.throwIfFailed();
  auto operation =
      std::make_shared<Operation>(lane, shared_from_this(), std::move(collective),
                                  std::vector<std::byte>{}, std::move(keepAlive), nanosOr(timeout));
  lane.push(operation);
  Progress::activate(shared_from_this(), lazily ? Progress::When::Lazily : Progress::When::Soon);
  return operation;
}

template <class Visit>
void LocalCommunicator::forEachLane(Visit visit) {
  visit(static_cast<Lane&>(collectives_));
  for (const auto& lane : added_) visit(*lane);
  for (const auto& channel : channels_) {
    if (ChannelLane* lane = channel.load(std::memory_order_acquire)) {
      visit(static_cast<Lane&>(*lane));
    }
  }
}

bool LocalCommunicator::idle() {
  bool idle = true;
  forEachLane([&](Lane& lane) { idle &= lane.idle(); });
  return idle;
}

bool LocalCommunicator::needsDriver() {
  bool needed = false;
  forEachLane([&](Lane& lane) { needed |= lane.needsDriver(); });
  return needed;
}

bool LocalCommunicator::progress() {
  bool moved = false;
  forEachLane([&](Lane& lane) {
    if (lane.needsDriver()) moved |= lane.advance();
  });
  return moved;
}

int LocalCommunicator::awaited() {
  int lanes = 0;
  int awaited = -1;
  forEachLane([&](Lane& lane) {
    if (!lane.needsDriver()) return;
    awaited = lane.awaited();
    ++lanes;
  });
  return lanes == 1 ? awaited : -1;
}

bool LocalCommunicator::stillWaitsFor(int rank) {
  bool waits = true;
  forEachLane([&](Lane& lane) { waits &= !lane.needsDriver() || lane.stillWaitsForIfFree(rank); });
  return waits;
}

int64_t LocalCommunicator::checkStuck(int64_t now) {
  int64_t deadline = INT64_MAX;
  forEachLane([&](Lane& lane) {
    if (lane.needsDriver()) deadline = std::min(deadline, lane.checkStuck(now));
  });
  return deadline;
}

std::shared_ptr<Communicator> LocalCommunicator::split(std::span<const int> ranks,
                                                       const std::string& name,
                                                       std::chrono::nanoseconds timeout,
                                                       WaitHooks* hooks) {
  const auto reject = [](const std::string& why) -> void {
    throw Error(ErrorKind::InvalidArgument, "split: " + why);
  };
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= size()) {
      reject("Invalid rank " + std::to_string(ranks[i]) + " in ranks. Valid ranks are 0 to " +
             std::to_string(size() - 1));
    }
    if (std::find(ranks.begin(), ranks.begin() + i, ranks[i]) != ranks.begin() + i) {
      reject("Rank " + std::to_string(ranks[i]) + " appears multiple times in ranks");
    }
  }
  const auto self = std::find(ranks.begin(), ranks.end(), rank());
  if (!ranks.empty() && self == ranks.end()) {
    reject("Current rank " + std::to_string(rank()) +
           " is not included in the provided ranks list");
  }
  const int newRank = static_cast<int>(self - ranks.begin());

  // Everybody tells everybody its list; the first of a list also where it listens.
  struct Announcement {
    int32_t count;
    int32_t ranks[Arena::kMaxRanks];
    LeaderAddress leader;
  };
  Announcement own{};
  own.count = static_cast<int32_t>(ranks.size());
  std::copy(ranks.begin(), ranks.end(), own.ranks);
  std::unique_ptr<Leader> leader;
  if (!ranks.empty() && newRank == 0) {
    leader = std::make_unique<Leader>();
    own.leader = leader->address();
  }
  std::vector<Announcement> all(size());
  Collective exchange;
  exchange.kind = CollectiveKind::AllGather;
  exchange.type = DataType::Opaque1;
  exchange.count = sizeof own;
  exchange.input = reinterpret_cast<const std::byte*>(&own);
  exchange.output = reinterpret_cast<std::byte*>(all.data());
  run(exchange, timeout, hooks);
  if (ranks.empty()) return nullptr;
  for (const int r : ranks) {
    if (all[r].count != own.count || !std::equal(ranks.begin(), ranks.end(), all[r].ranks)) {
      throw Error(ErrorKind::Mismatch,
                  "split: rank " + std::to_string(rank()) + " and rank " + std::to_string(r) +
                      " passed different lists of ranks",
                  {rank(), r}, "split", "all members of a new group pass the same list");
    }
  }

  CommunicatorOptions options;
  options.rank = newRank;
  options.size = static_cast<int>(ranks.size());
  options.name = name;
  options.timeout = std::chrono::nanoseconds(nanosOr(timeout));
  const Deadline deadline = deadlineAfter(options.timeout);
  std::optional<HostGroup> group =
      leader ? makeGroup(*leader, options.size, deadline, interruptOf(hooks))
             : join(all[ranks[0]].leader, newRank, options.size, deadline, interruptOf(hooks));
  if (!group) {
    throw Error(ErrorKind::PeerLost,
                "split: rank " + std::to_string(ranks[0]) + ", the first of '" + name +
                    "', died, or gave up",
                {ranks[0]}, "split", "see its output for the reason");
  }
  options.timeout = this->timeout();
  auto child = std::make_shared<LocalCommunicator>(options, std::move(*group));
  child->start(hooks);
  return child;
}

HostGroup LocalCommunicator::handOver(size_t bytes, UniqueFd brings, WaitHooks* hooks) {
  std::unique_ptr<Leader> leader;
  LeaderAddress address;
  if (rank() == 0) {
    leader = std::make_unique<Leader>();
    address = leader->address();
  }
  Collective tell;
  tell.kind = CollectiveKind::Broadcast;
  tell.type = DataType::Opaque1;
  tell.count = sizeof address;
  tell.output = reinterpret_cast<std::byte*>(&address);
  run(tell, {}, hooks);
  const Deadline deadline = deadlineAfter(timeout());
  if (leader) {
    return leader->gather(size(), createSharedMemory("ctran", bytes), deadline, interruptOf(hooks),
                          std::move(brings));
  }
  auto group = join(address, rank(), size(), deadline, interruptOf(hooks), std::move(brings));
  if (group) return std::move(*group);
  throw Error(ErrorKind::PeerLost, "rank 0 of '" + name() + "' died, or gave up", {0}, {},
              "see its output for the reason");
}

void LocalCommunicator::abort(const std::string& reason) {
  if (!core_.belongsHere()) throw core_.forkError();
  if (finalized_.load(std::memory_order_relaxed)) return;  // the others go on without this rank
  core_.fail(Error(ErrorKind::Aborted,
                   "communicator '" + core_.name + "' was aborted by rank " +
                       std::to_string(rank()) + (reason.empty() ? "" : ": " + reason),
                   {rank()}));
  Progress::poke(Progress::When::Soon);
  for (const auto& weak : dependents()) {
    if (const auto dependent = weak.lock()) dependent->abort(reason);
  }
}

void LocalCommunicator::addDependent(const std::shared_ptr<LocalCommunicator>& dependent) {
  std::lock_guard lock(dependentsMutex_);
  std::erase_if(dependents_, [](const auto& weak) { return weak.expired(); });
  dependents_.push_back(dependent);
}

std::vector<std::weak_ptr<LocalCommunicator>> LocalCommunicator::dependents() {
  std::lock_guard lock(dependentsMutex_);
  return dependents_;
}

void LocalCommunicator::leave() {
  for (const uint64_t watch : watches_) PeerWatcher::unwatch(watch);
  watches_.clear();
  auto& state = core_.arena.control(rank()).state;
  if (state.exchange(Arena::RankState::Left, std::memory_order_seq_cst) != Arena::RankState::Left) {
    core_.arena.wakeAll();
  }
}

void LocalCommunicator::finalize(WaitHooks* hooks) {
  if (finalized_.load(std::memory_order_relaxed)) return;
  if (core_.belongsHere()) {
    Patience patience(core_, hooks);
    const int64_t deadline = nowNanos() + timeoutNanos_.load(std::memory_order_relaxed);
    while (!idle() && nowNanos() < deadline) {
      if (progress()) continue;
      try {
        patience.pause(
            -1, [&] { return !idle() && stillWaitsFor(-1); },
            [&](int64_t now) { return std::min(checkStuck(now), deadline); });
      } catch (const Error&) {
        // The communicator is broken; progress() ends what is queued with the same error.
      }
    }
    leave();
  }
  finalized_.store(true, std::memory_order_relaxed);
}

}  // namespace ctran
