#include "ctran/stream/stream_queue.h"

#include <algorithm>
#include <utility>

#include "ctran/base/error.h"
#include "ctran/stream/backoff.h"
#include "ctran/stream/watchdog.h"

namespace ctran {

namespace {

using std::chrono::microseconds;

constexpr microseconds kFirstDrainPause{20};
constexpr microseconds kLongestDrainPause{1000};

/// Calls those that are still owned.
void callThose(const std::vector<std::weak_ptr<std::function<void()>>>& callbacks) {
  for (const auto& one : callbacks) {
    if (const auto callback = one.lock()) (*callback)();
  }
}

}  // namespace

StreamQueue::StreamQueue(StreamQueueOptions options)
    : options_(std::move(options)),
      events_(std::make_shared<gpu::EventPool>(options_.runtime, options_.device,
                                               options_.mostIdleEvents)) {
  static_cast<void>(DeviceTimer::isWanted());  // throws for a value that is none
}

std::string StreamQueue::describe(std::string_view op) const {
  return std::string(op) + " of communicator '" + name() + "' (rank " + std::to_string(rank()) +
         " of " + std::to_string(size()) + ")";
}

void StreamQueue::throwIfBroken() const {
  if (!broken_) [[likely]]
    return;
  throwError();
}

void StreamQueue::throwError() const {
  observer().seen();
  const std::lock_guard lock(errorMutex_);
  throw Error(*error_);
}

std::optional<Error> StreamQueue::error() const {
  const std::lock_guard lock(errorMutex_);
  return error_;
}

void StreamQueue::breakWith(const Error& error, bool tellOthers) {
  if (!belongsHere()) return;
  {
    const std::lock_guard lock(errorMutex_);
    if (error_) return;
    error_ = error;
  }
  broken_ = true;
  endKernels();
  failOperations(error, tellOthers ? announce(error) : nullptr);
  Watchdog::poke();
}

void StreamQueue::abort() {
  breakWith(Error(ErrorKind::Aborted,
                  "Communicator '" + name() + "' has been aborted: abort() was called on rank " +
                      std::to_string(rank()),
                  {rank()}));
}

void StreamQueue::failOperations(const Error& error, const std::function<void()>& awaitTold) {
  std::vector<std::shared_ptr<StreamOperation>> failed;
  {
    const std::lock_guard lock(streamsMutex_);
    for (const OneStream& one : streams_) {
      failed.insert(failed.end(), one.operations.begin(), one.operations.end());
    }
  }
  bool awaited = isCalling();
  bool reachable = false;
  for (const auto& operation : failed) {
    awaited = awaited || operation->isAwaited();
    reachable = reachable || operation->isReachable();
  }
  for (const auto& operation : failed) operation->fail(error);
  const auto op = failed.empty() ? replayed() : std::optional(failed.front()->name());
  if (awaited || !op) return observer().broken();
  // The program cannot ask for the error any more, so the observer may end the process: the other
  // ranks are told first.
  if (!reachable && awaitTold) awaitTold();
  observer().failed(std::string(*op), std::make_exception_ptr(error), reachable || failed.empty());
}

gpu::Stream StreamQueue::ownStream(bool highPriority) {
  highPriority = highPriority || options_.highPriority;
  auto& stream = ownStreams_[highPriority];
  if (!stream) {
    const gpu::RelaxedCapture relaxed(runtime());
    stream.emplace(runtime(), device(), highPriority);
  }
  return stream->get();
}

void StreamQueue::copy(void* to, const void* from, size_t bytes, gpu::Stream stream) const {
  runtime().check(runtime().memcpyAsync(gpu::addressOf(to), gpu::addressOf(from), bytes, stream),
                  "copying on the device");
}

StreamQueue::Placement StreamQueue::place(gpu::Stream current, bool aside, bool highPriority) {
  if (current == gpu::kStreamPerThread) {
    throw Error(ErrorKind::InvalidArgument,
                "the stream per thread is another one on each thread, of which none can be told",
                {}, {}, "pass a stream that is made by cudaStreamCreate, or the default stream");
  }
  Placement placement{current, current, runtime().isCapturing(current)};
  if ((aside || highPriority) && !placement.isCaptured) {
    placement.stream = ownStream(highPriority);
    placement.joins = !aside;
    const gpu::PooledEvent ready(events());
    runtime().check(runtime().eventRecord(ready.get(), current), "recording an event");
    runtime().check(runtime().streamWaitEvent(placement.stream, ready.get(), 0),
                    "making a stream wait");
  }
  if (DeviceTimer::isWanted() && !placement.isCaptured) [[unlikely]] {
    const gpu::RelaxedCapture relaxed(runtime());
    if (!timer_) timer_.emplace(runtime(), device(), options_.mostIdleEvents);
    placement.timing = timer_->begin(placement.stream);
  }
  return placement;
}

std::shared_ptr<StreamOperation> StreamQueue::track(
    const Placement& placement, StreamOperation::Description description,
    const std::function<std::shared_ptr<void>()>& keepAlive) {
  gpu::PooledEvent end = placement.timing ? timer_->makeEnd() : gpu::PooledEvent(events());
  runtime().check(runtime().eventRecord(end.get(), placement.stream), "recording an event");
  if (placement.joins) {
    runtime().check(runtime().streamWaitEvent(placement.current, end.get(), 0),
                    "making a stream wait");
  }
  description.timing = placement.timing;
  // The allocator keeps the order of the caller's stream. It does not know our own one.
  const bool isOrdered = options_.freesInStreamOrder;
  const bool isFreedInOrder = isOrdered && placement.stream == placement.current;
  if (!isFreedInOrder && keepAlive) description.keepAlive = keepAlive();
  auto operation = std::make_shared<StreamOperation>(
      std::move(description), share(), std::move(end), placement.stream,
      isOrdered ? std::optional(placement.current) : std::nullopt);
  {
    const std::lock_guard lock(streamsMutex_);
    auto one = std::find_if(streams_.begin(), streams_.end(), [&](const OneStream& candidate) {
      return candidate.stream == placement.stream;
    });
    if (one == streams_.end()) one = streams_.insert(one, OneStream{placement.stream, {}});
    one->operations.push_back(operation);
  }
  Watchdog::poke();
  return operation;
}

bool StreamQueue::isIdle() const {
  const std::lock_guard lock(streamsMutex_);
  return std::all_of(streams_.begin(), streams_.end(),
                     [](const OneStream& one) { return one.operations.empty(); });
}

/// What a graph owns: the buffers of an operation, and the queue, which goes after them.
struct StreamQueue::KeptByGraph {
  KeptByGraph(std::shared_ptr<StreamQueue> queue, std::shared_ptr<void> value)
      : queue(std::move(queue)), value(std::move(value)) {
    ++this->queue->graphs_;
  }
  ~KeptByGraph() { --queue->graphs_; }
  KeptByGraph(const KeptByGraph&) = delete;
  KeptByGraph& operator=(const KeptByGraph&) = delete;

  const std::shared_ptr<StreamQueue> queue;
  const std::shared_ptr<void> value;
};

void StreamQueue::orderAllBefore(gpu::Stream stream) const {
  std::vector<std::shared_ptr<StreamOperation>> last;  // a stream keeps order
  {
    const std::lock_guard lock(streamsMutex_);
    for (const OneStream& one : streams_) {
      if (!one.operations.empty()) last.push_back(one.operations.back());
    }
  }
  for (const auto& operation : last) operation->orderBehind(stream);
}

void StreamQueue::keepWithGraph(gpu::Stream stream, std::shared_ptr<void> value) {
  auto kept = std::make_unique<std::shared_ptr<void>>(
      std::make_shared<KeptByGraph>(share(), std::move(value)));
  // The graph goes on a thread of the driver, which may not free device memory.
  gpu::keepWithGraph(runtime(), stream, kept.get(), [](void* given) {
    const std::unique_ptr<std::shared_ptr<void>> owned(static_cast<std::shared_ptr<void>*>(given));
    Watchdog::release(std::move(*owned));
  });
  static_cast<void>(kept.release());  // the graph's from here on
}

void StreamQueue::retireEnded() {
  // A stream keeps order: if its last operation has ended all have, and one query tells.
  std::vector<std::shared_ptr<StreamOperation>> ended;
  const auto isOver = [this](const StreamOperation& operation) {
    return operation.isOver() && (isSound() || isBroken());
  };
  {
    const std::lock_guard lock(streamsMutex_);
    for (OneStream& one : streams_) {
      auto& operations = one.operations;
      if (operations.empty()) continue;
      if (isOver(*operations.back())) {
        ended.insert(ended.end(), operations.begin(), operations.end());
        operations.clear();
        continue;
      }
      while (!operations.empty() && isOver(*operations.front())) {
        ended.push_back(std::move(operations.front()));
        operations.pop_front();
      }
    }
    std::erase_if(streams_, [](const OneStream& one) { return one.operations.empty(); });
  }
  if (ended.empty()) return;
  // The kernels of a broken communicator may have been told to end.
  const std::optional<Error> error = this->error();
  for (const auto& operation : ended) {
    if (error) {
      operation->fail(*error);
    } else {
      operation->complete();
    }
    operation->release();
  }
}

std::shared_ptr<StreamOperation> StreamQueue::findLate(Clock::time_point now) const {
  std::shared_ptr<StreamOperation> late;
  {
    const std::lock_guard lock(streamsMutex_);
    for (const OneStream& one : streams_) {
      for (const auto& operation : one.operations) {
        if (operation->deadline() > now) continue;
        if (!late || operation->sequence() < late->sequence()) late = operation;
      }
    }
  }
  return late && !late->isOver() ? late : nullptr;
}

void StreamQueue::onBreak(std::weak_ptr<std::function<void()>> callback) {
  {
    const std::lock_guard lock(errorMutex_);
    std::erase_if(onBreak_, [](const auto& one) { return one.expired(); });
    onBreak_.push_back(std::move(callback));
    if (!error_) return;
  }
  callOnBreak();
}

void StreamQueue::onInspect(std::weak_ptr<std::function<void()>> look) {
  const std::lock_guard lock(errorMutex_);
  onInspect_.push_back(std::move(look));
}

void StreamQueue::lookAtPrograms() {
  std::vector<std::weak_ptr<std::function<void()>>> looks;
  {
    const std::lock_guard lock(errorMutex_);
    std::erase_if(onInspect_, [](const auto& one) { return one.expired(); });
    looks = onInspect_;
  }
  callThose(looks);
}

bool StreamQueue::hasPrograms() const {
  if (isBroken()) return false;
  const std::lock_guard lock(errorMutex_);
  return std::any_of(onInspect_.begin(), onInspect_.end(),
                     [](const auto& one) { return !one.expired(); });
}

void StreamQueue::callOnBreak() {
  std::vector<std::weak_ptr<std::function<void()>>> callbacks;
  {
    const std::lock_guard lock(errorMutex_);
    callbacks.swap(onBreak_);
  }
  callThose(callbacks);
}

void StreamQueue::drain(WaitHooks* hooks) {
  const Blocking blocking(hooks);
  // This ends: every operation has a deadline at which it fails.
  for (Backoff backoff(kFirstDrainPause, kLongestDrainPause, hooks); !isBroken(); backoff.pause()) {
    retireEnded();
    if (isIdle()) break;
  }
}

}  // namespace ctran
