#include "ctran/engine/communicator.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "ctran/base/log.h"
#include "ctran/collective/plan/run.h"
#include "ctran/collective/preference.h"
#include "ctran/collective/premul.h"
#include "ctran/engine/create.h"
#include "ctran/engine/gpu_queue.h"
#include "ctran/engine/host_memory.h"
#include "ctran/engine/hosts_queue.h"
#include "ctran/engine/live_settings.h"
#include "ctran/engine/peer_watcher.h"
#include "ctran/engine/progress.h"
#include "ctran/engine/shm_queue.h"
#include "ctran/select/plans.h"
#include "ctran/stream/watchdog.h"
#include "ctran/topology/host.h"
#include "ctran/transport/ib/settings.h"
#include "ctran/transport/tcp/transport.h"

namespace ctran {
namespace {

// A child has none of the threads; locks that they held at that moment stay held in its copy, so it
// starts with fresh ones.
[[maybe_unused]] const int gEngineAtFork = pthread_atfork(nullptr, nullptr, [] {
  Progress::forget();
  PeerWatcher::forget();
  LiveSettings::forget();
});

/// Bytes that posting may have to copy on the spot.
size_t postedBytes(const Collective& collective) {
  size_t count = collective.count;
  for (const Block& block : collective.inputs) count += block.count;
  for (const Block& block : collective.outputs) count += block.count;
  if (collective.rows) count *= 1 + collective.rows->inputRows + collective.rows->outputRows;
  return count * sizeOf(collective.type);
}

std::shared_ptr<SharedMapping> privateMemory(size_t bytes) {
  return SharedMapping::map(createSharedMemory("ctran", bytes), bytes);
}

/// Null if no ranks share a host.
std::optional<Arena> makeArena(const HostMap& map, const std::shared_ptr<SharedMapping>& memory) {
  if (!memory) return std::nullopt;
  return std::make_optional<Arena>(memory, map.index(), static_cast<int>(map.local().size()),
                                   map.local().data());
}

/// Behind the arena the failure, and what this host's ranks do; of other ranks every rank has what
/// it hears.
Board makeBoard(const HostMap& map, std::shared_ptr<SharedMapping> memory, int rank, int size) {
  if (!memory) return {privateMemory(Board::bytesFor(1)), rank, size, false};
  const size_t arena = Arena::bytesFor(static_cast<int>(map.local().size()));
  return {std::move(memory), arena, rank, size, map.local()};
}

/// What has been queued goes on by itself. Without a thread that does it nothing would end it.
void goOn(Communicator& communicator, OperationQueue& queue, Progress::When when) {
  try {
    Progress::activate(communicator.shared_from_this(), when);
  } catch (const Error& error) {
    communicator.core().fail(error);
    queue.advance();
    throw;
  }
}

Selector::PlanCheck whyNoFunctions(bool takesFunctions) {
  if (takesFunctions) return nullptr;
  return [](const PlanAlgorithm& plan, const Collective&) {
    return std::string(plan.function() != nullptr ? "it does not serve the engine's own calls"
                                                  : "");
  };
}

}  // namespace

Deadline deadlineAfter(std::chrono::nanoseconds timeout) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<Deadline::duration>(std::min(timeout, kLongestTimeout));
}

/// What waits on sockets call now and then.
Interrupt interruptOf(WaitHooks* hooks) {
  if (hooks == nullptr) return nullptr;
  return [hooks] { hooks->interrupted(); };
}

/// For the time of a call: one thread at a time.
class Communicator::Entered {
 public:
  Entered(Communicator& communicator, const Collective& collective) : communicator_(communicator) {
    Core& core = communicator.core_;
    if (communicator.finalized_.load(std::memory_order_relaxed)) {
      throw Error(ErrorKind::InvalidArgument, "communicator '" + core.name + "' is finalized");
    }
    if (!core.belongsHere()) throw core.forkError();
    if (core.failed()) communicator.refuse(collective);
    // A plain check, not an atomic exchange, which would cost every call: this finds most of the
    // mistakes.
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
  Communicator& communicator_;
};

Communicator::Communicator(const CommunicatorOptions& options, HostGroup group)
    : map_(std::vector<std::string>(options.size), options.rank, options.size),
      arena_(std::in_place, SharedMapping::map(group.memory, memoryBytes(options.size)),
             options.rank, options.size),
      core_(options.name, *arena_, options.size),
      hints_(options.hints),
      gpus_(options.gpus),
      takesFunctions_(options.functions && !options.gpus),
      hint_(checkedPreferences(hintedPreferences(options.hints), gpus_)),
      timeoutNanos_(std::min(options.timeout, kLongestTimeout).count()),
      channels_(options.size),
      mailboxes_(options.size),
      collectives_(std::make_unique<ShmQueue>(core_, *arena_)),
      namedPlans_(std::in_place, options.hints, options.size),
      localWatch_(map_.local(), std::move(group)) {
  static_cast<void>(hintedFailOver(options.hints));  // a wrong one is wrong on one host, too
  collectives_->selector.prefer(options.hints);
  collectives_->selector.usePlans(options.name, whyNoFunctions(takesFunctions_));
  record(0);
}

Communicator::Communicator(const CommunicatorOptions& options, Hosts hosts, HostMemory memory)
    : map_(std::move(memory.map)),
      key_(hosts.key),
      places_(hosts.places),
      arena_(makeArena(map_, memory.memory)),
      board_(makeBoard(map_, std::move(memory.memory), options.rank, options.size)),
      core_(options.name, *board_, static_cast<int>(map_.local().size())),
      hints_(options.hints),
      gpus_(options.gpus),
      takesFunctions_(options.functions && !options.gpus),
      hint_(checkedPreferences(hintedPreferences(options.hints), gpus_)),
      timeoutNanos_(std::min(options.timeout, kLongestTimeout).count()),
      channels_(options.size),
      mailboxes_(options.size),
      transport_(std::make_unique<TcpTransport>(*board_, std::move(hosts),
                                                static_cast<Transport::Listener&>(*this),
                                                hintedFailOver(options.hints))),
      localWatch_(map_.local(), std::move(memory.local)) {
  core_.progress = this;
  if (arena_) {
    arena_->control(map_.index()).state.store(Board::RankState::Alive, std::memory_order_release);
    core_.sleepAt(*arena_, map_.local());
  }
  Selector selector(map_);
  selector.prefer(options.hints);
  selector.usePlans(options.name, whyNoFunctions(takesFunctions_));
  collectives_ =
      std::make_unique<HostsQueue>(core_, *transport_, map_, arena(), std::move(selector));
  record(publicNameOf(key_, options.name));
}

void Communicator::start(WaitHooks* hooks) {
  board().control(rank()).state.store(Board::RankState::Alive, std::memory_order_release);
  if (transport_) {
    const std::weak_ptr<Communicator> weak = shared_from_this();
    watch_ = PeerWatcher::watchReadable(transport_->fd(), [weak] {
      if (const auto self = weak.lock()) self->core_.wakeOwn();
    });
    if (transport_->urgentFd() >= 0) {
      urgentWatch_ = PeerWatcher::watchReadable(transport_->urgentFd(), [weak] {
        const auto self = weak.lock();
        if (!self) return;
        self->transport_->poll();
        PeerWatcher::arm(self->urgentWatch_);
      });
      PeerWatcher::arm(urgentWatch_);
    }
  }
  localWatch_.start(shared_from_this());
  // A rank that fails then has a rank on another host to tell.
  if (transport_ && arena_) transport_->connect(rankToTell(map_));
  LiveSettings::start(shared_from_this());
  collectives_->agree(*this, hooks);
}

void Communicator::record(uint64_t group) {
  const UniqueFd& memory = localWatch_.memory();
  if (!memory) return;
  recording_.emplace(
      SharedMapping::map(memory, sharedMemoryBytes(memory.get())),
      static_cast<int>(map_.local().size()), map_.index(),
      Recording::Who{rank(), size(), gpus_ ? name() + "/control" : name(), processName(), group,
                     timeoutNanos_.load(std::memory_order_relaxed)});
  core_.recording = &*recording_;
  collectives_->selector.record(core_.recording);
  // The neighbours' places come first: they do not change any more when others look for theirs.
  collectives_->recordTraffic(*recording_);
  if (transport_) transport_->record(core_.recording);
}

Communicator::~Communicator() {
  gpu_.reset();  // ends its kernels; it uses the rest
  if (core_.belongsHere()) {
    if (const auto error = finalized_ ? std::nullopt : disagreement()) {
      log(LogComponent::Engine, LogLevel::Error, "communicator '%s': %s", name().c_str(),
          error->what());
    }
    leave();
  }
  // The queues refer to what is destroyed after them.
  const auto release = [](std::atomic<OperationQueue*>& queues) {
    const OperationQueue* queue = queues.exchange(nullptr, std::memory_order_acq_rel);
    while (queue != nullptr)
      delete std::exchange(queue, queue->next.load(std::memory_order_relaxed));
  };
  channels_.forEach([&](int, Channels& channels) {
    release(channels.sends);
    release(channels.receives);
  });
  release(receivesFromAny_);
  added_.clear();
  mailboxes_.clear();
}

std::chrono::nanoseconds Communicator::timeout() const {
  return std::chrono::nanoseconds(timeoutNanos_.load(std::memory_order_relaxed));
}

void Communicator::setTimeout(std::chrono::nanoseconds timeout) {
  if (timeout <= std::chrono::nanoseconds(0)) {
    throw Error(ErrorKind::InvalidArgument, "the timeout of a communicator must be positive");
  }
  timeoutNanos_.store(std::min(timeout, kLongestTimeout).count(), std::memory_order_relaxed);
  if (gpu_) gpu_->setTimeout(timeout);
}

void Communicator::useMemoryOf(Communicator& other) {
  if (!transport_ || !other.transport_) return;
  if (auto memory = other.transport_->directMemory()) {
    transport_->shareDirectMemory(std::move(memory));
  }
}

int64_t Communicator::nanosOr(std::chrono::nanoseconds timeout) const {
  if (timeout < std::chrono::nanoseconds(0)) {
    throw Error(ErrorKind::InvalidArgument, "a timeout must not be negative");
  }
  if (timeout.count() == 0) return timeoutNanos_.load(std::memory_order_relaxed);
  return std::min(timeout, kLongestTimeout).count();
}

/// The plan that serves this call, if one does. What the call itself asks for comes first.
std::shared_ptr<const PlanAlgorithm> Communicator::planFor(const Collective& collective) const {
  if (collective.plan) return collective.plan;  // chosen by GPUs of several hosts
  if (collective.onRail) return nullptr;
  if (auto plan = collectives_->selector.choosePlan(collective)) {
    // One that was registered since this call began is not set up.
    if (plan->function() == nullptr || functions_) return plan;
  }
  return namedPlans_ ? namedPlans_->find(collective) : nullptr;
}

/// Before the first call that a function of the program serves. All ranks choose alike.
void Communicator::setUpFunctions(const Collective& collective, std::chrono::nanoseconds timeout,
                                  WaitHooks* hooks) {
  if (functions_ || !takesFunctions_ || spansHosts() || collective.onRail) return;
  if (finalized_.load(std::memory_order_relaxed) || !core_.belongsHere() || core_.failed()) return;
  validate(collective, rank(), size());
  Collective call = collective;
  if (!call.hints) call.hints = standing_;
  const auto plan = collectives_->selector.choosePlan(call);
  if (!plan || plan->function() == nullptr) return;
  functions_ = std::make_unique<FunctionRunner>(core_, *this, timeout, hooks);
  collectives_->functions = functions_.get();
}

Explanation Communicator::explain(CollectiveKind kind, size_t bytes, DataType type,
                                  std::shared_ptr<const CallHints> hints) const {
  if (kind > CollectiveKind::AllToAllVCombine || static_cast<int>(type) >= kDataTypeCount) {
    throw Error(ErrorKind::InvalidArgument, "explain: there is no such operation, or data type");
  }
  if (gpu_) return gpu_->explain(kind, bytes, type, hints.get());
  if (!hints) hints = standing_;
  Collective call;
  call.kind = kind;
  call.type = type;
  call.count = bytes / sizeOf(type);
  call.hints = hints;
  Explanation explanation = collectives_->selector.explain(
      kind, bytes, toleratesPartialSums(type, ReduceKind::Sum), hints.get(), type);
  const bool isPlan = explanation.algorithm.starts_with("plan:");
  if (namedPlans_ && !isPlan) namedPlans_->explain(call, explanation);
  for (int peer = 0; transport_ && peer < size(); ++peer) {
    if (transport_->connections(peer) == 0) continue;
    explanation.network.push_back("rank " + std::to_string(peer) + ": " + transport_->pathTo(peer));
  }
  return explanation;
}

TuningTable Communicator::tune(const TuneOptions& options) {
  Collective barrier;
  barrier.kind = CollectiveKind::Barrier;
  for (int i = 0; i < 2; ++i) run(barrier, {}, nullptr);  // now all know what all can do
  TuningTable table;
  table.machine = thisHost().key();
  table.ranks = size();
  if (spansHosts()) table.shape = map_.shape();
  table = ctran::tune(
      std::move(table), collectives_->selector,
      [this](const Collective& call) { run(call, {}, nullptr); }, options);
  if (rank() == 0 && size() > 1) table.save();
  return table;
}

/// Numbers that the caller passes in memory are what they will be when nothing runs any more: then
/// what is wrong with them is told at the call.
void Communicator::checkLists(const Collective& collective, const OperationQueue& queue) const {
  if (!collective.rows || !queue.idle()) return;
  static_cast<void>(RowLists(collective, rank(), size()));
  if (collective.kind == CollectiveKind::AllToAllVCombine) receivedRows(collective, rank(), size());
}

/// Throws what has broken the communicator.
void Communicator::refuse(const Collective& collective) {
  try {
    core_.throwIfFailed();
  } catch (const Error& failure) {
    using Kind = CollectiveKind;
    const bool isMessage = collective.kind == Kind::Send || collective.kind == Kind::Recv;
    if (!isMessage && collectives_->idle()) collectives_->refused(collective, failure.kind());
    throw;
  }
}

OperationQueue& Communicator::queueFor(const Collective& collective) {
  switch (collective.kind) {
    case CollectiveKind::Send:
      return messageQueue(collective.root, true);
    case CollectiveKind::Recv:
      return receiveQueue(collective.root, collective.tag);
    default:
      return *collectives_;
  }
}

OperationQueue& Communicator::messageQueue(int peer, bool sends) {
  Channels& channels = channels_.get(peer);
  std::atomic<OperationQueue*>& channel = sends ? channels.sends : channels.receives;
  if (channel.load(std::memory_order_acquire) == nullptr) {
    auto queue = sends ? makeSendQueue(peer) : makeReceiveQueue(peer);
    channel.store(queue.release(), std::memory_order_release);
  }
  return *channel.load(std::memory_order_acquire);
}

/// Receives of one tag wait in one queue, in their order; those of different tags do not wait for
/// one another.
OperationQueue& Communicator::receiveQueue(int source, int tag) {
  std::atomic<OperationQueue*>* link =
      source == kAnyRank ? &receivesFromAny_ : &channels_.get(source).receives;
  OperationQueue* free = nullptr;
  while (OperationQueue* const queue = link->load(std::memory_order_acquire)) {
    if (queue->idle()) {
      if (free == nullptr) free = queue;
    } else if (!queue->ended(tag).holds()) {
      return *queue;
    }
    link = &queue->next;
  }
  if (free == nullptr) {
    free = makeReceiveQueue(source).release();
    link->store(free, std::memory_order_release);
  }
  return *free;
}

std::unique_ptr<OperationQueue> Communicator::makeReceiveQueue(int source) {
  std::vector<Mailbox*> mailboxes;
  for (int peer = 0; peer < size(); ++peer) {
    if (source != kAnyRank && source != peer) continue;
    mailboxes.push_back(&mailboxes_.get(peer, [this, peer] { return makeMailbox(peer); }));
  }
  return std::make_unique<ReceiveQueue>(core_, mailboxes);
}

std::vector<Condition> Communicator::olderReceives(const Collective& collective) {
  if (collective.kind != CollectiveKind::Recv) return {};
  const auto pending = [&](const std::atomic<OperationQueue*>& queues) {
    OperationQueue* queue = queues.load(std::memory_order_acquire);
    for (; queue != nullptr; queue = queue->next.load(std::memory_order_acquire)) {
      Condition ended = queue->ended(collective.tag);
      if (!ended.holds()) return ended;
    }
    return Condition();
  };
  std::vector<Condition> older;
  if (collective.root == kAnyRank) {
    older.resize(size());
    channels_.forEach(
        [&](int peer, const Channels& channels) { older[peer] = pending(channels.receives); });
  } else if (receivesFromAny_.load(std::memory_order_acquire) != nullptr) {
    older.push_back(pending(receivesFromAny_));
  }
  return older;
}

void Communicator::run(const Collective& collective, std::chrono::nanoseconds timeout,
                       WaitHooks* hooks) {
  if (functionsWereRegistered.load(std::memory_order_relaxed)) [[unlikely]] {
    setUpFunctions(collective, timeout, hooks);
  }
  if (standing_ && !collective.hints) [[unlikely]] {
    Collective hinted = collective;
    hinted.hints = standing_;
    return run(hinted, timeout, hooks);
  }
  const Entered entered(*this, collective);
  validate(collective, rank(), size());
  const int64_t nanos = nanosOr(timeout);
  OperationQueue& queue = queueFor(collective);
  checkLists(collective, queue);
  if (!queue.idle()) {
    const std::shared_ptr<Work> operation = append(queue, Collective(collective), nanos, nullptr);
    return Work::finish({&operation, 1}, hooks);
  }
  auto plan = planFor(collective);
  std::vector<Condition> older;
  if (collective.kind == CollectiveKind::Recv) older = olderReceives(collective);
  if (collective.op.kind != ReduceKind::PremulSum && !plan && older.empty()) {
    return queue.run(collective, nanos, hooks);
  }
  Collective scaled = collective;
  scaled.plan = std::move(plan);
  scaled.after = std::move(older);
  const std::vector<std::byte> scratch = applyPremul(scaled, size());
  queue.run(scaled, nanos, hooks);
}

std::shared_ptr<Work> Communicator::post(Collective collective, std::chrono::nanoseconds timeout,
                                         std::shared_ptr<void> keepAlive, WaitHooks* hooks) {
  if (functionsWereRegistered.load(std::memory_order_relaxed)) [[unlikely]] {
    setUpFunctions(collective, timeout, hooks);
  }
  const Entered entered(*this, collective);
  validate(collective, rank(), size());
  const int64_t nanos = nanosOr(timeout);
  OperationQueue& queue = queueFor(collective);
  checkLists(collective, queue);
  if (standing_ && !collective.hints) collective.hints = standing_;
  return append(queue, std::move(collective), nanos, std::move(keepAlive));
}

std::shared_ptr<Operation> Communicator::append(OperationQueue& queue, Collective&& collective,
                                                int64_t timeoutNanos,
                                                std::shared_ptr<void> keepAlive) {
  collective.plan = planFor(collective);
  collective.after = olderReceives(collective);
  std::vector<std::byte> scratch = applyPremul(collective, size());
  // What is small starts, and often ends, right here; the peers need not wait for another thread.
  const bool startsHere = queue.idle() && postedBytes(collective) <= Arena::kStepBytes;
  auto operation =
      std::make_shared<Operation>(queue, shared_from_this(), std::move(collective),
                                  std::move(scratch), std::move(keepAlive), timeoutNanos);
  queue.push(operation);
  if (startsHere) queue.advance();
  if (!queue.idle()) goOn(*this, queue, startsHere ? Progress::When::Lazily : Progress::When::Soon);
  return operation;
}

void Communicator::useGpu(const GpuOptions& options, WaitHooks* hooks) {
  if (gpu_) {
    throw Error(ErrorKind::InvalidArgument, "communicator '" + name() + "' has GPUs already");
  }
  gpu_ = GpuQueue::create(*this, options, hooks);
  Watchdog::add(gpu());
}

std::shared_ptr<GpuQueue> Communicator::gpu() {
  return gpu_ ? std::shared_ptr<GpuQueue>(shared_from_this(), gpu_.get()) : nullptr;
}

GpuQueue& Communicator::onGpus() {
  if (gpu_) [[likely]]
    return *gpu_;
  throw Error(ErrorKind::InvalidArgument, "communicator '" + name() + "' has no GPUs", {}, {},
              "give it some with useGpu");
}

std::shared_ptr<StreamOperation> Communicator::enqueue(const Collective& collective,
                                                       gpu::Stream stream,
                                                       const EnqueueOptions& options,
                                                       WaitHooks* hooks) {
  return onGpus().enqueue(collective, stream, options, hooks);
}

std::shared_ptr<StreamOperation> Communicator::enqueueMessages(std::span<const Collective> messages,
                                                               gpu::Stream stream,
                                                               const EnqueueOptions& options) {
  return onGpus().enqueueMessages(messages, stream, options);
}

OperationQueue& Communicator::addQueue(std::unique_ptr<OperationQueue> queue) {
  added_.push_back(std::move(queue));
  return *added_.back();
}

std::shared_ptr<Work> Communicator::submit(OperationQueue& queue, Collective collective,
                                           std::chrono::nanoseconds timeout,
                                           std::shared_ptr<void> keepAlive, bool lazily) {
  if (!core_.belongsHere()) throw core_.forkError();
  core_.throwIfFailed();
  auto operation =
      std::make_shared<Operation>(queue, shared_from_this(), std::move(collective),
                                  std::vector<std::byte>{}, std::move(keepAlive), nanosOr(timeout));
  queue.push(operation);
  goOn(*this, queue, lazily ? Progress::When::Lazily : Progress::When::Soon);
  return operation;
}

template <class Visit>
void Communicator::forEachQueue(Visit visit) {
  visit(*collectives_);
  for (const auto& queue : added_) visit(*queue);
  const auto visitAll = [&](const std::atomic<OperationQueue*>& queues) {
    OperationQueue* queue = queues.load(std::memory_order_acquire);
    for (; queue != nullptr; queue = queue->next.load(std::memory_order_acquire)) visit(*queue);
  };
  channels_.forEach([&](int, const Channels& channels) {
    visitAll(channels.receives);
    visitAll(channels.sends);
  });
  visitAll(receivesFromAny_);
}

bool Communicator::idle() {
  bool idle = true;
  forEachQueue([&](OperationQueue& queue) { idle &= queue.idle(); });
  return idle;
}

bool Communicator::needsDriver() {
  bool needed = false;
  forEachQueue([&](OperationQueue& queue) { needed |= queue.needsDriver(); });
  return needed;
}

bool Communicator::progress() {
  bool moved = core_.poll();
  forEachQueue([&](OperationQueue& queue) {
    if (queue.needsDriver()) moved |= queue.advance();
  });
  return moved;
}

int Communicator::awaited() {
  int queues = 0;
  int awaited = -1;
  forEachQueue([&](OperationQueue& queue) {
    if (!queue.needsDriver()) return;
    awaited = queue.awaited();
    ++queues;
  });
  return queues == 1 ? awaited : -1;
}

bool Communicator::stillWaitsFor(int rank) {
  bool waits = true;
  forEachQueue([&](OperationQueue& queue) {
    waits &= !queue.needsDriver() || queue.stillWaitsForIfFree(rank);
  });
  return waits;
}

int64_t Communicator::checkStuck(int64_t now) {
  int64_t deadline = INT64_MAX;
  forEachQueue([&](OperationQueue& queue) {
    if (queue.needsDriver()) deadline = std::min(deadline, queue.checkStuck(now));
  });
  return deadline;
}

std::unique_ptr<OperationQueue> Communicator::makeSendQueue(int peer) {
  if (sharesMemory(peer)) return std::make_unique<ShmSendQueue>(core_, *arena_, map_.indexOf(peer));
  return std::make_unique<NetSendQueue>(core_, *transport_, peer);
}

std::unique_ptr<Mailbox> Communicator::makeMailbox(int peer) {
  if (sharesMemory(peer)) {
    RecordedLink* const link = recording_ ? recording_->link(peer) : nullptr;
    return std::make_unique<ShmMailbox>(*arena_, map_.indexOf(peer), link);
  }
  return std::make_unique<NetMailbox>(*transport_, rank(), peer);
}

bool Communicator::poll() {
  const bool moved = transport_->poll();
  tellFailure();
  return moved;
}

void Communicator::arm() {
  if (watch_ != 0) PeerWatcher::arm(watch_);
}

}  // namespace ctran
