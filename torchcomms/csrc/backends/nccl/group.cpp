#include "torchcomms/csrc/backends/nccl/group.hpp"

#include <algorithm>
#include <thread>

#include "ctran/base/log.h"
#include "ctran/os/process.h"
#include "torchcomms/csrc/backends/nccl/operation.hpp"
#include "torchcomms/csrc/backends/nccl/watchdog.hpp"

namespace torch::comms::nccl {

namespace {

using ctran::ErrorKind;
using std::chrono::microseconds;
using std::chrono::milliseconds;

/// An operation of a warm communicator has been taken over by then.
constexpr microseconds kSpin{100};
constexpr microseconds kFirstPause{20};
constexpr microseconds kLastPause{1000};
constexpr milliseconds kSignalInterval{50};
/// How long an abort lets another thread finish its call of the library.
constexpr std::chrono::seconds kAbortPatience{2};
/// An operation that takes longer than this makes us look whether another rank has given up.
constexpr milliseconds kBulletinInterval{500};
constexpr milliseconds kMissingPatience{1500};

class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
};

std::string listed(const std::vector<int>& ranks) {
  std::string text;
  for (const int r : ranks) text += (text.empty() ? "" : ", ") + std::to_string(r);
  return text;
}

}  // namespace

std::string describe(OpName op, const Group& group) {
  return std::string(toString(op)) + " of communicator '" + group.setup().name + "' (rank " +
         std::to_string(group.rank()) + " of " + std::to_string(group.size()) + ")";
}

Group::Group(GroupSetup setup)
    : setup_(std::move(setup)),
      events_(std::make_shared<ctran::gpu::EventPool>(setup_.runtime, deviceIndex(),
                                                      setup_.hints.mostIdleEvents)) {}

Group::~Group() { abortHandle(); }

int Group::deviceIndex() const { return setup_.device.has_index() ? setup_.device.index() : 0; }

Config Group::config() const {
  Config made = setup_.hints.config;
  if (!setup_.hints.netName.empty()) made.netName = setup_.hints.netName.c_str();
  if (library().version >= 22700) {
    made.commName = (setup_.hints.commName.empty() ? setup_.name : setup_.hints.commName).c_str();
  } else {
    made.size = offsetof(Config, trafficClass) + sizeof(made.trafficClass);
    made.version = static_cast<unsigned>(library().version);
  }
  return made;
}

void Group::create(const UniqueId& id, Clock::time_point deadline, milliseconds timeout) {
  const auto creating = [&] { return "creating communicator '" + setup_.name + "'"; };
  const HostWait wait;
  const ctran::gpu::ActiveDevice active(runtime(), deviceIndex());
  const ctran::gpu::RelaxedCapture relaxed(runtime());
  try {
    {
      const std::lock_guard lock(inside_);
      Config made = config();
      check(library().commInitRankConfig(&handle_, size(), id, rank(), &made),
            "ncclCommInitRankConfig");
    }
    settle(creating, deadline, timeout);
  } catch (...) {
    abortHandle();
    throw;
  }
}

void Group::splitFrom(Group& parent, int color, int key, Clock::time_point deadline,
                      milliseconds timeout) {
  const HostWait wait;
  const ctran::gpu::ActiveDevice active(runtime(), deviceIndex());
  const ctran::gpu::RelaxedCapture relaxed(runtime());
  try {
    {
      const std::scoped_lock lock(parent.inside_, inside_);
      parent.requireWhole();
      Config made = config();
      parent.check(library().commSplit(parent.handle_, color, key, &handle_, &made),
                   "ncclCommSplit");
    }
    // The child's handle is there when the parent is done.
    parent.settle([&] { return describe(OpName::split, parent); }, deadline, timeout);
    settle([&] { return "creating communicator '" + setup_.name + "'"; }, deadline, timeout);
  } catch (...) {
    abortHandle();
    throw;
  }
}

void Group::splitOff(Group& parent, Clock::time_point deadline, milliseconds timeout) {
  const HostWait wait;
  const ctran::gpu::ActiveDevice active(parent.runtime(), parent.deviceIndex());
  const ctran::gpu::RelaxedCapture relaxed(parent.runtime());
  Comm none = nullptr;
  {
    const std::lock_guard lock(parent.inside_);
    parent.requireWhole();
    parent.check(parent.library().commSplit(parent.handle_, kSplitNoColor, 0, &none, nullptr),
                 "ncclCommSplit");
  }
  parent.settle([&] { return describe(OpName::split, parent); }, deadline, timeout);
}

ctran::Error Group::translated(Result result, const std::string& what) const {
  std::string text = what + ": " + library().getErrorString(result);
  const char* last = library().getLastError(handle_);
  if (last && *last) text += std::string(": ") + last;
  text += " (" + std::string(library().vendor->label) + " " + library().versionText() + ", rank " +
          std::to_string(rank()) + " of " + std::to_string(size()) + " of communicator '" +
          setup_.name + "')";
  constexpr const char* kDebug = "NCCL_DEBUG=WARN in the environment makes it say more";
  switch (result) {
    case Result::InvalidArgument:
    case Result::InvalidUsage:
      return {ErrorKind::InvalidArgument, text, {}, {}, kDebug};
    case Result::RemoteError:
      return {ErrorKind::PeerLost, text, {}, {}, "look at the other ranks' output"};
    case Result::Timeout:
      return {ErrorKind::Timeout, text, {}, {}, kDebug};
    default:
      return {ErrorKind::System, text, {}, {}, kDebug};
  }
}

void Group::check(Result result, const char* function) const {
  if (result == Result::Success || result == Result::InProgress) [[likely]]
    return;
  throw translated(result, function);
}

ctran::Error Group::timedOut(const std::string& what, milliseconds timeout) const {
  return {ErrorKind::Timeout,
          what + " has not ended within " + std::to_string(timeout.count()) + " ms on rank " +
              std::to_string(rank()),
          {},
          {},
          "do all ranks run, and call the same operations in the same order?"};
}

void Group::settle(const std::function<std::string()>& what, Clock::time_point deadline,
                   milliseconds timeout) {
  const Clock::time_point start = Clock::now();
  std::optional<HostWait> wait;
  Clock::time_point signals = start + kSignalInterval;
  for (microseconds pause = kFirstPause;;) {
    {
      const std::lock_guard lock(inside_);
      if (broken_) break;
      Result state = Result::InProgress;
      if (handle_) check(library().commGetAsyncError(handle_, &state), "ncclCommGetAsyncError");
      if (state != Result::InProgress) {
        unsettled_ = false;
        check(state, what().c_str());
        return;
      }
    }
    const Clock::time_point now = Clock::now();
    if (now >= deadline) throw timedOut(what(), timeout);
    if (now - start < kSpin) continue;
    if (!wait) wait.emplace();
    if (now >= signals) {
      HostWait::checkInterrupts();
      signals = now + kSignalInterval;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLastPause);
  }
  throwError();
}

void Group::requireWhole() const {
  if (!broken_) [[likely]]
    return;
  throwError();
}

void Group::throwError() const {
  monitor().seen();
  const std::lock_guard lock(errorMutex_);
  throw ctran::Error(*error_);
}

void Group::issue(OpName op, bool grouped, Clock::time_point deadline,
                  const std::function<void(Comm)>& calls) {
  const Counted calling(calling_);
  const auto timeout =
      std::chrono::duration_cast<milliseconds>(deadline - Clock::now()) + milliseconds(1);
  const auto what = [&] { return describe(op, *this); };
  try {
    bool settled = false;
    if (unsettled_) settle(what, deadline, timeout);
    {
      const std::lock_guard lock(inside_);
      requireWhole();
      if (grouped) check(library().groupStart(), "ncclGroupStart");
      try {
        calls(handle_);
      } catch (...) {
        if (grouped) library().groupEnd();  // else this thread's later calls would join the group
        throw;
      }
      if (grouped) check(library().groupEnd(), "ncclGroupEnd");
      Result state = Result::Success;
      check(library().commGetAsyncError(handle_, &state), "ncclCommGetAsyncError");
      settled = state != Result::InProgress;
      unsettled_ = !settled;
      if (settled) check(state, toString(op).data());
    }
    if (!settled) settle(what, deadline, timeout);
  } catch (const ctran::Error& error) {
    if (isBroken()) throw;
    const bool refused = error.kind() == ErrorKind::InvalidArgument && isUsable();
    if (!refused) {
      monitor().seen();
      breakWith(error);
    }
    throw;
  }
}

bool Group::isUsable() {
  const std::lock_guard lock(inside_);
  Result state = Result::Success;
  return handle_ && library().commGetAsyncError(handle_, &state) == Result::Success &&
         state == Result::Success;
}

void Group::breakWith(const ctran::Error& error, bool announce) {
  {
    const std::lock_guard lock(errorMutex_);
    if (error_) return;
    error_ = error;
    announce_ = announce && setup_.bulletin;
  }
  broken_ = true;
  failOperations(error);
  abortHandle();
  Watchdog::poke();
}

void Group::failOperations(const ctran::Error& error) {
  std::vector<std::shared_ptr<Operation>> failed;
  {
    const std::lock_guard lock(queueMutex_);
    for (const Queue& queue : queues_) {
      failed.insert(failed.end(), queue.operations.begin(), queue.operations.end());
    }
  }
  bool awaited = calling_ > 0;
  bool reachable = false;
  for (const auto& operation : failed) {
    awaited = awaited || operation->isAwaited();
    reachable = reachable || operation->isReachable();
  }
  for (const auto& operation : failed) operation->fail(error);
  if (awaited || failed.empty()) return;
  monitor().failed(std::string(toString(failed.front()->op())), std::make_exception_ptr(error),
                   reachable);
}

void Group::abortHandle() {
  Comm handle = nullptr;
  {
    // A call that never returns must not keep us from ending it.
    const std::unique_lock lock(inside_, kAbortPatience);
    handle = std::exchange(handle_, nullptr);
  }
  if (!handle) return;
  const auto abort = [&library = library(), &runtime = runtime(), device = deviceIndex(), handle] {
    try {
      const ctran::gpu::ActiveDevice active(runtime, device);
      const ctran::gpu::RelaxedCapture relaxed(runtime);
      library.commAbort(handle);
    } catch (const ctran::Error& error) {
      ctran::log(ctran::LogLevel::Warn, "a communicator could not be aborted: %s", error.what());
    }
  };
  if (kept_ > 0) {
    ctran::startThread("nccl-abort", abort);  // the library waits for the graphs to go
  } else {
    const HostWait wait;
    abort();
  }
}

Stream Group::ownStream() {
  if (!ownStream_) {
    const ctran::gpu::RelaxedCapture relaxed(runtime());
    ownStream_.emplace(runtime(), deviceIndex(), setup_.highPriority);
  }
  return ownStream_->get();
}

void Group::copy(void* to, const void* from, size_t bytes, Stream stream) const {
  using ctran::gpu::DevicePtr;
  runtime().check(runtime().memcpyAsync(reinterpret_cast<DevicePtr>(to),
                                        reinterpret_cast<DevicePtr>(from), bytes, stream),
                  "copying on the device");
}

void Group::watch(Stream stream, std::shared_ptr<Operation> operation) {
  {
    const std::lock_guard lock(queueMutex_);
    auto queue = std::find_if(queues_.begin(), queues_.end(),
                              [&](const Queue& one) { return one.stream == stream; });
    if (queue == queues_.end()) queue = queues_.insert(queue, Queue{stream, {}});
    queue->operations.push_back(std::move(operation));
  }
  Watchdog::poke();
}

bool Group::isIdle() const {
  const std::lock_guard lock(queueMutex_);
  return std::all_of(queues_.begin(), queues_.end(),
                     [](const Queue& queue) { return queue.operations.empty(); });
}

void Group::patrol() {
  try {
    const Clock::time_point now = Clock::now();
    retireEnded();
    if (!broken_) lookForErrors();
    if (!broken_) lookAtDeadlines(now);
    if (!broken_ && setup_.bulletin) lookAtBulletin(now);
    std::optional<ctran::Error> news;
    {
      const std::lock_guard lock(errorMutex_);
      if (std::exchange(announce_, false)) news = error_;
    }
    if (news) setup_.bulletin->announceError(*news);
  } catch (const ctran::Error& error) {
    breakWith(error);
  } catch (const std::exception& error) {
    breakWith(ctran::Error(ErrorKind::System, error.what()));
  }
}

void Group::retireEnded() {
  // Streams keep order: if the last has ended, all have, and one question has answered it.
  std::vector<std::shared_ptr<Operation>> ended;
  {
    const std::lock_guard lock(queueMutex_);
    for (Queue& queue : queues_) {
      auto& waiting = queue.operations;
      if (waiting.empty()) continue;
      if (waiting.back()->isOver()) {
        ended.insert(ended.end(), waiting.begin(), waiting.end());
        waiting.clear();
        continue;
      }
      while (!waiting.empty() && waiting.front()->isOver()) {
        ended.push_back(std::move(waiting.front()));
        waiting.pop_front();
      }
    }
    std::erase_if(queues_, [](const Queue& queue) { return queue.operations.empty(); });
  }
  for (const auto& operation : ended) {
    operation->complete();
    operation->release();
  }
}

void Group::lookForErrors() {
  Result state = Result::Success;
  std::optional<ctran::Error> error;
  {
    const std::unique_lock lock(inside_, std::try_to_lock);
    if (!lock || !handle_) return;
    check(library().commGetAsyncError(handle_, &state), "ncclCommGetAsyncError");
    if (state == Result::Success || state == Result::InProgress) return;
    error = translated(state, "asynchronous error");
  }
  breakWith(*error);
}

void Group::lookAtDeadlines(Clock::time_point now) {
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
  if (!late || late->isOver()) return;
  const std::string what =
      "Operation " + std::to_string(late->sequence()) + ", " + describe(late->op(), *this) + ",";
  ctran::Error error = timedOut(what, late->timeout());
  std::vector<int> missing;
  std::string found;
  if (setup_.bulletin) {
    missing = setup_.bulletin->findMissing(late->sequence(), kMissingPatience);
    found =
        missing.empty() ? "; all ranks wait in it" : "; not waiting in it: rank " + listed(missing);
  }
  breakWith(ctran::Error(
      ErrorKind::Timeout,
      what + " has not ended within " + std::to_string(late->timeout().count()) + " ms" + found,
      missing, std::string(toString(late->op())), error.hint()));
}

void Group::lookAtBulletin(Clock::time_point now) {
  if (now - bulletinRead_ < kBulletinInterval) return;
  bool waits = calling_ > 0;
  {
    const std::lock_guard lock(queueMutex_);
    for (const Queue& queue : queues_) {
      waits = waits || (!queue.operations.empty() &&
                        now - queue.operations.front()->start() > kBulletinInterval);
    }
  }
  if (!waits) return;
  bulletinRead_ = now;
  if (const auto error = setup_.bulletin->readError()) breakWith(*error, /*announce=*/false);
}

void Group::keepWithGraph(Stream stream, std::shared_ptr<void> held) {
  /// Freed on the watchdog's thread: the driver's may not free device memory. The last one lets go
  /// of a group that was finalized before.
  struct Kept {
    Kept(std::shared_ptr<Group> g, std::shared_ptr<void> t)
        : group(std::move(g)), tensors(std::move(t)) {
      ++group->kept_;
    }
    ~Kept() { --group->kept_; }
    std::shared_ptr<Group> group;
    std::shared_ptr<void> tensors;
  };
  auto kept = std::make_unique<std::shared_ptr<void>>(
      std::make_shared<Kept>(shared_from_this(), std::move(held)));
  ctran::gpu::keepWithGraph(runtime(), stream, kept.get(), [](void* value) {
    const std::unique_ptr<std::shared_ptr<void>> owned(static_cast<std::shared_ptr<void>*>(value));
    Watchdog::bury(std::move(*owned));
  });
  static_cast<void>(kept.release());  // the graph's now
}

void Group::finalize(Clock::time_point deadline, milliseconds timeout) {
  const HostWait wait;
  Clock::time_point signals = Clock::now() + kSignalInterval;
  // Every operation ends, or fails at its own deadline.
  for (microseconds pause = kFirstPause; !isBroken(); pause = std::min(2 * pause, kLastPause)) {
    retireEnded();
    if (isIdle()) break;
    if (Clock::now() >= signals) {
      HostWait::checkInterrupts();
      signals = Clock::now() + kSignalInterval;
    }
    std::this_thread::sleep_for(pause);
  }
  requireWhole();
  // The library would wait for the graphs to go, and they may be replayed until then: the last of
  // them takes the group along.
  if (kept_ == 0) leave(deadline, timeout);
}

void Group::leave(Clock::time_point deadline, milliseconds timeout) {
  const ctran::gpu::ActiveDevice active(runtime(), deviceIndex());
  const ctran::gpu::RelaxedCapture relaxed(runtime());
  try {
    {
      const std::lock_guard lock(inside_);
      if (!handle_) return;
      check(library().commFinalize(handle_), "ncclCommFinalize");
    }
    settle([&] { return "finalizing communicator '" + setup_.name + "'"; }, deadline, timeout);
    const std::lock_guard lock(inside_);
    if (Comm handle = std::exchange(handle_, nullptr)) {
      check(library().commDestroy(handle), "ncclCommDestroy");
    }
  } catch (const ctran::Error& error) {
    monitor().seen();
    breakWith(error);
    throw;
  }
}

void Group::close() {
  monitor().seen();
  if (kept_ > 0) return;  // graphs may be replayed yet
  breakWith(
      ctran::Error(ErrorKind::Aborted, "Communicator '" + setup_.name + "' has gone on rank " +
                                           std::to_string(rank()) + " without finalize()"),
      !isIdle());
}

}  // namespace torch::comms::nccl
