#include "ctran/engine/gpu_queue.h"

#include <tuple>
#include <utility>

#include "ctran/base/rank_list.h"
#include "ctran/engine/gpu_domain.h"
#include "ctran/engine/gpu_hosts.h"

namespace ctran {

namespace {

using std::chrono::milliseconds;

/// How often the watchdog looks whether operations have ended, or kernels failed; and, while no
/// operation goes on, whether other ranks have memory to be mapped.
constexpr milliseconds kCheckInterval{20};
constexpr milliseconds kIdleInterval{200};
/// An operation of this age does not end by itself if a rank has left without calling it.
constexpr std::chrono::seconds kLeftPatience{1};

/// Ranks as bits, and back: there are at most eight.
uint64_t maskOf(const std::vector<int>& ranks) {
  uint64_t mask = 0;
  for (const int rank : ranks) mask |= uint64_t{1} << rank;
  return mask;
}

std::vector<int> ranksOf(uint64_t mask) {
  std::vector<int> ranks;
  for (int rank = 0; mask != 0; ++rank, mask >>= 1) {
    if (mask & 1) ranks.push_back(rank);
  }
  return ranks;
}

/// Nothing to own is nothing to keep.
std::shared_ptr<void> keptFor(const EnqueueOptions& options) {
  return options.keepAlive ? options.keepAlive() : nullptr;
}

}  // namespace

std::unique_ptr<GpuQueue> GpuQueue::create(Communicator& communicator, const GpuOptions& options,
                                           WaitHooks* hooks) {
  auto made = std::make_unique<GpuQueue>(
      communicator, StreamQueueOptions{.runtime = gpu::Runtime::of(gpu::Platform::Cuda),
                                       .device = options.device,
                                       .name = communicator.name(),
                                       .rank = communicator.rank(),
                                       .size = communicator.size(),
                                       .highPriority = options.highPriority,
                                       .freesInStreamOrder = options.freesInStreamOrder,
                                       .checkInterval = kCheckInterval,
                                       .idleInterval = kIdleInterval,
                                       .observer = options.observer});
  if (GpuHosts::areFor(communicator)) {
    made->hosts_ = GpuHosts::create(communicator, options.device, hooks, options.fallback);
    made->domain_ = &made->hosts_->domain();
  } else {
    made->onlyDomain_ = GpuDomain::create(communicator, options.device, hooks, options.fallback);
    made->domain_ = made->onlyDomain_.get();
  }
  return made;
}

GpuQueue::GpuQueue(Communicator& communicator, StreamQueueOptions options)
    : StreamQueue(std::move(options)),
      communicator_(communicator),
      replays_(runtime(), device(), events()) {}

GpuQueue::~GpuQueue() = default;

std::shared_ptr<StreamQueue> GpuQueue::share() { return {communicator_.shared_from_this(), this}; }

std::shared_ptr<StreamOperation> GpuQueue::enqueue(const Collective& collective, gpu::Stream stream,
                                                   const EnqueueOptions& options,
                                                   WaitHooks* hooks) {
  if (collective.kind == CollectiveKind::Send || collective.kind == CollectiveKind::Recv) {
    return enqueueMessages({&collective, 1}, stream, options);
  }
  return issue(
      nameOf(collective.kind),
      [&](gpu::Stream target, milliseconds timeout, std::shared_ptr<void>& kept) {
        const GpuTarget where{target, options.aside, timeout, options.blocks, options.threads};
        if (options.symmetric) domain_->awaitMappings(collective);
        if (hosts_) return hosts_->launch(collective, where, timeout, kept);
        return domain_->launch(collective, where, hooks);
      },
      stream, options);
}

std::shared_ptr<StreamOperation> GpuQueue::enqueueMessages(std::span<const Collective> messages,
                                                           gpu::Stream stream,
                                                           const EnqueueOptions& options) {
  return issue(
      messages.empty() ? "messages" : nameOf(messages[0].kind),
      [&](gpu::Stream target, milliseconds timeout, std::shared_ptr<void>& kept) {
        const GpuTarget where{target, options.aside, timeout};
        if (hosts_) {
          hosts_->launchMessages(messages, where, timeout, kept);
        } else {
          domain_->launchMessages(messages, where);
        }
        return uint64_t{0};
      },
      stream, options);
}

std::shared_ptr<StreamOperation> GpuQueue::enqueueQuantized(const Collective& collective,
                                                            const Quantization& quantization,
                                                            gpu::Stream stream,
                                                            const EnqueueOptions& options) {
  // Nothing is gained by rounding what passes the host: contributions stay as they are.
  if (hosts_) return enqueue(collective, stream, options);
  return issue(
      nameOf(collective.kind),
      [&](gpu::Stream target, milliseconds timeout, std::shared_ptr<void>&) {
        return domain_->launchQuantized(collective, quantization, {target, options.aside, timeout});
      },
      stream, options);
}

std::shared_ptr<StreamOperation> GpuQueue::enqueueWork(
    const std::function<void(gpu::Stream)>& launch, std::vector<int> awaited, gpu::Stream stream,
    const EnqueueOptions& options) {
  return issue(
      options.name,
      [&](gpu::Stream target, milliseconds, std::shared_ptr<void>&) {
        launch(target);
        return uint64_t{0};
      },
      stream, options, std::move(awaited));
}

std::shared_ptr<StreamOperation> GpuQueue::issue(std::string_view name, const Launch& launch,
                                                 gpu::Stream stream, const EnqueueOptions& options,
                                                 std::vector<int> awaited) {
  throwIfBroken();
  if (!isSound()) [[unlikely]] {
    diagnose();
    throwIfBroken();
  }
  if (!options.name.empty()) name = options.name;
  const milliseconds timeout =
      options.timeout.count() != 0
          ? options.timeout
          : std::chrono::duration_cast<milliseconds>(communicator_.timeout());
  const gpu::ActiveDevice active(runtime(), device());
  const Placement where = place(stream, options.aside, options.highPriority);
  const bool isFollowed = where.isCaptured && (!awaited.empty() || Replays::areRecorded());
  const auto graph = isFollowed ? replays_.enter(where.stream) : nullptr;
  uint64_t number = 0;
  std::shared_ptr<void> kept;
  try {
    number = launch(where.stream, timeout, kept);
  } catch (const Error&) {
    if (!isSound()) {  // while it waited for the other ranks
      observer().seen();
      diagnose();
    }
    throw;
  }
  if (!where.isCaptured) {
    return track(
        where,
        {.name = name, .sequence = number, .timeout = timeout, .awaited = std::move(awaited)},
        options.keepAlive);
  }
  if (graph) {
    replays_.leave(*graph, where.stream, name, maskOf(awaited),
                   awaited.empty() ? milliseconds(0) : timeout);
  }
  using Kept =
      std::tuple<std::shared_ptr<void>, std::shared_ptr<Replays::Captured>, std::shared_ptr<void>>;
  keepWithGraph(where.stream, graph || kept ? std::make_shared<Kept>(keptFor(options), graph, kept)
                                            : keptFor(options));
  return nullptr;
}

bool GpuQueue::isSound() const { return hosts_ ? !hosts_->hasFailed() : !domain_->hasFailed(); }

Explanation GpuQueue::explain(CollectiveKind kind, size_t bytes, DataType type,
                              const CallHints* hints) const {
  return hosts_ ? hosts_->explain(kind, bytes, type, hints)
                : domain_->explain(kind, bytes, type, hints);
}

void GpuQueue::setTimeout(std::chrono::nanoseconds timeout) {
  if (hosts_) return hosts_->setTimeout(timeout);
  domain_->setTimeout(timeout);
}

void GpuQueue::leave() {
  if (hosts_ && !hasGraphs()) hosts_->leave();
}

void GpuQueue::diagnose() {
  const auto error = hosts_ ? hosts_->trouble() : domain_->trouble();
  if (error) breakWith(*error, /*tellOthers=*/false);
}

bool GpuQueue::inspect() {
  try {
    retireEnded();
    if (!isBroken()) diagnose();
    if (!isBroken()) lookAtDeadlines();
    if (!isBroken()) lookForLeft();
    if (hasGraphs()) lookAtReplays();
    domain_->shareMemory();
  } catch (const Error& error) {
    breakWith(error);
  } catch (const std::exception& error) {
    breakWith(Error(ErrorKind::System, error.what()));
  }
  // A graph may be replayed at any time, and nothing else notices when that goes wrong.
  return isIdle() && (!hasGraphs() || isBroken());
}

void GpuQueue::lookAtDeadlines() {
  const auto late = findLate(Clock::now());
  if (!late) return;
  if (hosts_ && hosts_->othersSpeakFirst(late->sequence(), Clock::now() - late->deadline())) return;
  const std::string what = describe(late->name());
  if (!late->awaited().empty()) {
    return breakWith(lateSignal(late->name(), what, late->timeout(), late->awaited()));
  }
  const Error error = domain_->timedOut(what, late->sequence(), late->timeout());
  breakWith(Error(error.kind(), error.what(), error.ranks(), std::string(late->name()), ""));
}

/// Not for messages: it is not known what a rank has sent before it left. They have their timeouts.
void GpuQueue::lookForLeft() {
  const auto now = Clock::now();
  std::shared_ptr<StreamOperation> latest;
  {
    const std::lock_guard lock(streamsMutex_);
    for (const OneStream& one : streams_) {
      for (const auto& operation : one.operations) {
        if (now - operation->start() < kLeftPatience) break;
        if (!latest || operation->sequence() > latest->sequence()) latest = operation;
      }
    }
  }
  if (!latest || latest->sequence() == 0) return;
  const auto error = domain_->leftWithout(latest->sequence());
  if (!error || latest->isOver()) return;
  breakWith(Error(error->kind(), error->what(), error->ranks(), std::string(latest->name()), ""));
}

void GpuQueue::lookAtReplays() {
  const auto now = Clock::now();
  const auto running = replays_.mostUrgent(now);
  if (isBroken() || !running || running->deadline() > now) return;
  breakWith(lateSignal(running->name, describe(running->name) + ", in a replay of its graph,",
                       running->timeout, ranksOf(running->sequence)));
}

std::optional<std::string_view> GpuQueue::replayed() {
  try {
    const auto running = replays_.mostUrgent(Clock::now());
    return running ? std::optional(running->name) : std::nullopt;
  } catch (const Error&) {  // the device is lost
    return std::nullopt;
  }
}

Error GpuQueue::lateSignal(std::string_view op, const std::string& what, milliseconds timeout,
                           std::vector<int> ranks) const {
  const std::string whom = listed(ranks);
  return {ErrorKind::Timeout,
          what + " has not ended within " + std::to_string(timeout.count()) +
              " ms: it waited for rank " + whom,
          std::move(ranks), std::string(op), "does every signal that is waited for get sent?"};
}

void GpuQueue::endKernels() {
  if (hosts_) {
    hosts_->fail(*error());
  } else {
    domain_->fail(*error());
  }
  callOnBreak();
}

}  // namespace ctran
