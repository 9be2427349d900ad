#include "torchcomms/csrc/backends/stream/group.hpp"

#include <algorithm>

#include "torchcomms/csrc/backends/stream/operation.hpp"
#include "torchcomms/csrc/backends/stream/waiting.hpp"
#include "torchcomms/csrc/backends/stream/watchdog.hpp"

namespace torch::comms::stream {

namespace {

using std::chrono::microseconds;

constexpr microseconds kFirstPause{20};
constexpr microseconds kLastPause{1000};
/// How long a process that may end waits until the other ranks have been told.
constexpr std::chrono::milliseconds kTellingPatience{500};

}  // namespace

std::string describe(OpName op, const StreamGroup& group) {
  return std::string(toString(op)) + " of communicator '" + group.name() + "' (rank " +
         std::to_string(group.rank()) + " of " + std::to_string(group.size()) + ")";
}

StreamGroup::StreamGroup(StreamSetup setup)
    : streams_(std::move(setup)),
      events_(std::make_shared<ctran::gpu::EventPool>(streams_.runtime, deviceIndex(),
                                                      streams_.mostIdleEvents)) {}

void StreamGroup::requireWhole() const {
  if (!broken_) [[likely]]
    return;
  throwError();
}

void StreamGroup::throwError() const {
  monitor().seen();
  const std::lock_guard lock(errorMutex_);
  throw ctran::Error(*error_);
}

std::optional<ctran::Error> StreamGroup::error() const {
  const std::lock_guard lock(errorMutex_);
  return error_;
}

void StreamGroup::breakWith(const ctran::Error& error, bool tellOthers) {
  if (!belongsHere()) return;
  {
    const std::lock_guard lock(errorMutex_);
    if (error_) return;
    error_ = error;
  }
  broken_ = true;
  endKernels();
  failOperations(error, tellOthers ? announce(error) : std::future<bool>());
  Watchdog::poke();
}

void StreamGroup::failOperations(const ctran::Error& error, std::future<bool> told) {
  std::vector<std::shared_ptr<Operation>> failed;
  {
    const std::lock_guard lock(queueMutex_);
    for (const Queue& queue : queues_) {
      failed.insert(failed.end(), queue.operations.begin(), queue.operations.end());
    }
  }
  bool awaited = isCalling();
  bool reachable = false;
  for (const auto& operation : failed) {
    awaited = awaited || operation->isAwaited();
    reachable = reachable || operation->isReachable();
  }
  for (const auto& operation : failed) operation->fail(error);
  const std::optional<OpName> op = failed.empty() ? replayed() : failed.front()->op();
  if (awaited || !op) return monitor().broken();
  if (!reachable && told.valid()) {  // nobody can look at it: this may end the process
    const HostWait wait;
    told.wait_for(kTellingPatience);
  }
  monitor().failed(std::string(toString(*op)), std::make_exception_ptr(error),
                   reachable || failed.empty());
}

Stream StreamGroup::ownStream() {
  if (!ownStream_) {
    const ctran::gpu::RelaxedCapture relaxed(runtime());
    ownStream_.emplace(runtime(), deviceIndex(), streams_.highPriority);
  }
  return ownStream_->get();
}

void StreamGroup::copy(void* to, const void* from, size_t bytes, Stream stream) const {
  using ctran::gpu::DevicePtr;
  runtime().check(runtime().memcpyAsync(reinterpret_cast<DevicePtr>(to),
                                        reinterpret_cast<DevicePtr>(from), bytes, stream),
                  "copying on the device");
}

Place StreamGroup::place(bool async_op) {
  const Stream current = currentStream();
  Place place{current, current, runtime().isCapturing(current)};
  if (async_op && !place.isCaptured) {
    place.stream = ownStream();
    const ctran::gpu::PooledEvent ready(events());
    runtime().check(runtime().eventRecord(ready.get(), current), "recording an event");
    runtime().check(runtime().streamWaitEvent(place.stream, ready.get(), 0),
                    "making a stream wait");
  }
  return place;
}

c10::intrusive_ptr<TorchWork> StreamGroup::finish(
    OpName op, const Place& place, uint64_t sequence, std::chrono::milliseconds timeout,
    const std::function<std::shared_ptr<void>()>& hold, std::vector<int> awaited) {
  ctran::gpu::PooledEvent end(events());
  runtime().check(runtime().eventRecord(end.get(), place.stream), "recording an event");
  // Torch's allocator keeps the order of the current stream; of ours nobody else knows.
  const bool isOrdered = !device().is_cpu();
  const bool isFreedInOrder = isOrdered && place.stream == place.current;
  auto operation = std::make_shared<Operation>(
      op, shared_from_this(), sequence, timeout, std::move(end), place.stream,
      isOrdered ? std::optional(place.current) : std::nullopt, isFreedInOrder ? nullptr : hold());
  if (!awaited.empty()) operation->setAwaited(std::move(awaited));
  watch(place.stream, operation);
  return c10::make_intrusive<StreamWork>(std::move(operation));
}

void StreamGroup::watch(Stream stream, std::shared_ptr<Operation> operation) {
  {
    const std::lock_guard lock(queueMutex_);
    auto queue = std::find_if(queues_.begin(), queues_.end(),
                              [&](const Queue& one) { return one.stream == stream; });
    if (queue == queues_.end()) queue = queues_.insert(queue, Queue{stream, {}});
    queue->operations.push_back(std::move(operation));
  }
  Watchdog::poke();
}

bool StreamGroup::isIdle() const {
  const std::lock_guard lock(queueMutex_);
  return std::all_of(queues_.begin(), queues_.end(),
                     [](const Queue& queue) { return queue.operations.empty(); });
}

void StreamGroup::keepWithGraph(Stream stream, std::shared_ptr<void> held) {
  /// Freed on the watchdog's thread: the driver's may not free device memory. The last one lets go
  /// of a group that was finalized before.
  struct Kept {
    Kept(std::shared_ptr<StreamGroup> g, std::shared_ptr<void> t)
        : group(std::move(g)), tensors(std::move(t)) {
      ++group->kept_;
    }
    ~Kept() { --group->kept_; }
    const std::shared_ptr<StreamGroup> group;
    const std::shared_ptr<void> tensors;
  };
  auto kept = std::make_unique<std::shared_ptr<void>>(
      std::make_shared<Kept>(shared_from_this(), std::move(held)));
  ctran::gpu::keepWithGraph(runtime(), stream, kept.get(), [](void* value) {
    const std::unique_ptr<std::shared_ptr<void>> owned(static_cast<std::shared_ptr<void>*>(value));
    Watchdog::bury(std::move(*owned));
  });
  static_cast<void>(kept.release());  // the graph's now
}

void StreamGroup::retireEnded() {
  // Streams keep order: if the last has ended, all have, and one question has answered it.
  std::vector<std::shared_ptr<Operation>> ended;
  const auto isOver = [this](const Operation& operation) {
    return operation.isOver() && (isSound() || isBroken());
  };
  {
    const std::lock_guard lock(queueMutex_);
    for (Queue& queue : queues_) {
      auto& waiting = queue.operations;
      if (waiting.empty()) continue;
      if (isOver(*waiting.back())) {
        ended.insert(ended.end(), waiting.begin(), waiting.end());
        waiting.clear();
        continue;
      }
      while (!waiting.empty() && isOver(*waiting.front())) {
        ended.push_back(std::move(waiting.front()));
        waiting.pop_front();
      }
    }
    std::erase_if(queues_, [](const Queue& queue) { return queue.operations.empty(); });
  }
  if (ended.empty()) return;
  // Those of a broken group may have been ended.
  const std::optional<ctran::Error> error = this->error();
  for (const auto& operation : ended) {
    if (error) {
      operation->fail(*error);
    } else {
      operation->complete();
    }
    operation->release();
  }
}

std::shared_ptr<Operation> StreamGroup::findLate(Clock::time_point now) const {
  std::shared_ptr<Operation> late;
  {
    const std::lock_guard lock(queueMutex_);
    for (const Queue& queue : queues_) {
      for (const auto& operation : queue.operations) {
        if (operation->deadline() > now) continue;
        if (!late || operation->sequence() < late->sequence()) late = operation;
      }
    }
  }
  return late && !late->isOver() ? late : nullptr;
}

void StreamGroup::atEnd(std::weak_ptr<std::function<void()>> release) {
  {
    const std::lock_guard lock(errorMutex_);
    std::erase_if(releases_, [](const auto& one) { return one.expired(); });
    releases_.push_back(std::move(release));
    if (!error_) return;
  }
  releaseAll();
}

void StreamGroup::releaseAll() {
  std::vector<std::weak_ptr<std::function<void()>>> releases;
  {
    const std::lock_guard lock(errorMutex_);
    releases.swap(releases_);
  }
  for (const auto& one : releases) {
    if (const auto release = one.lock()) (*release)();
  }
}

void StreamGroup::drain() {
  const HostWait wait;
  // Every operation ends, or fails at its own deadline.
  for (Pauses pauses(kFirstPause, kLastPause); !isBroken(); pauses.rest()) {
    retireEnded();
    if (isIdle()) break;
  }
}

}  // namespace torch::comms::stream
