#include "torchcomms/csrc/backends/nccl/group.hpp"

#include <algorithm>
#include <condition_variable>
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

class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
};

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

void Group::runBounded(const std::function<void()>& call, const std::function<std::string()>& what,
                       Clock::time_point deadline, milliseconds timeout) {
  struct Errand {
    std::mutex mutex;
    std::condition_variable ended;
    bool over = false;
    std::exception_ptr error;
  };
  const HostWait wait;
  auto errand = std::make_shared<Errand>();
  ctran::startThread("nccl-errand", [self = shared_from_this(), errand, call] {
    ++self->errands_;
    std::exception_ptr error;
    try {
      const ctran::gpu::ActiveDevice active(self->runtime(), self->deviceIndex());
      const ctran::gpu::RelaxedCapture relaxed(self->runtime());
      call();
    } catch (...) {
      error = std::current_exception();
    }
    --self->errands_;
    const std::lock_guard lock(errand->mutex);
    errand->over = true;
    errand->error = error;
    errand->ended.notify_all();
  });
  std::unique_lock lock(errand->mutex);
  while (!errand->ended.wait_for(lock, kSignalInterval, [&] { return errand->over; })) {
    lock.unlock();
    HostWait::checkInterrupts();
    requireWhole();
    if (Clock::now() >= deadline) throw timedOut(what(), timeout);
    lock.lock();
  }
  if (errand->error) std::rethrow_exception(errand->error);
}

void Group::create(const UniqueId& id, Clock::time_point deadline, milliseconds timeout) {
  const auto what = [this] { return "creating communicator '" + setup_.name + "'"; };
  runBounded(
      [this, id] {
        const std::lock_guard lock(inside_);
        Config made = config();
        check(library().commInitRankConfig(&handle_, size(), id, rank(), &made),
              "ncclCommInitRankConfig");
      },
      what, deadline, timeout);
  settle(what, deadline, timeout);
}

void Group::splitFrom(Group& parent, int color, int key, Clock::time_point deadline,
                      milliseconds timeout) {
  parent.askToSplit(shared_from_this(), color, key, deadline, timeout);
  settle([this] { return "creating communicator '" + setup_.name + "'"; }, deadline, timeout);
}

void Group::splitOff(Group& parent, Clock::time_point deadline, milliseconds timeout) {
  parent.askToSplit(nullptr, kSplitNoColor, 0, deadline, timeout);
}

void Group::askToSplit(const std::shared_ptr<Group>& child, int color, int key,
                       Clock::time_point deadline, milliseconds timeout) {
  const auto what = [this] { return describe(OpName::split, *this); };
  try {
    runBounded(
        [this, child, color, key] {
          const std::lock_guard lock(inside_);
          requireWhole();
          Config made = (child ? *child : *this).config();
          Comm none = nullptr;
          check(library().commSplit(handle_, color, key, child ? &child->handle_ : &none, &made),
                "ncclCommSplit");
        },
        what, deadline, timeout);
    settle(what, deadline, timeout);  // the child's handle is there when the parent is done
  } catch (const ctran::Error& error) {
    breakWith(error);
    throw;
  }
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

/// While a call of the library goes on.
class Group::Inside {
 public:
  Inside(Group& group, OpName op, milliseconds timeout) : group_(group) {
    group.callOp_ = op;
    group.callTimeout_ = timeout.count();
    group.callStart_ = Clock::now().time_since_epoch().count();
  }
  ~Inside() { group_.callStart_ = 0; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Group& group_;
};

void Group::issue(OpName op, bool grouped, Clock::time_point deadline,
                  const std::function<void(Comm)>& calls) {
  // Before inside_: whoever waits for the interpreter lock must not keep others from the handle.
  const HostWait wait;
  const Counted calling(calling_);
  const auto timeout =
      std::chrono::duration_cast<milliseconds>(deadline - Clock::now()) + milliseconds(1);
  const auto what = [&] { return describe(op, *this); };
  try {
    bool settled = true;
    if (unsettled_) settle(what, deadline, timeout);
    {
      const std::lock_guard lock(inside_);
      requireWhole();
      const Inside inside(*this, op, timeout);
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
    requireWhole();  // what broke it says more than how the call ended
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
  if (awaited || failed.empty()) return monitor().broken();
  monitor().failed(std::string(toString(failed.front()->op())), std::make_exception_ptr(error),
                   reachable);
}

void Group::abortHandle() {
  const HostWait wait;
  Comm handle = nullptr;
  {
    // A call that never returns must not keep us from ending it. (Not so an errand: its thread will
    // let go of what it has made.)
    const std::unique_lock lock(inside_, kAbortPatience);
    if (!lock && errands_ > 0) return;
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

void* Group::registerMemory(void* address, size_t bytes) {
  const HostWait wait;
  const ctran::gpu::ActiveDevice active(runtime(), deviceIndex());
  const std::lock_guard lock(inside_);
  requireWhole();
  void* handle = nullptr;
  check(library().commRegister(handle_, address, bytes, &handle), "ncclCommRegister");
  return handle;
}

void Group::deregisterMemory(void* handle) {
  const HostWait wait;
  const ctran::gpu::ActiveDevice active(runtime(), deviceIndex());
  const std::lock_guard lock(inside_);
  // An aborted communicator has let go of it already.
  if (handle && handle_) check(library().commDeregister(handle_, handle), "ncclCommDeregister");
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
  if (setup_.bulletin) setup_.bulletin->leave();
  // The library would wait for the graphs to go, and they may be replayed until then: the last of
  // them takes the group along.
  if (kept_ == 0) leave(deadline, timeout);
}

void Group::leave(Clock::time_point deadline, milliseconds timeout) {
  const auto what = [this] { return "finalizing communicator '" + setup_.name + "'"; };
  try {
    runBounded(
        [this] {
          const std::lock_guard lock(inside_);
          if (handle_) check(library().commFinalize(handle_), "ncclCommFinalize");
        },
        what, deadline, timeout);
    settle(what, deadline, timeout);
    runBounded(
        [this] {
          const std::lock_guard lock(inside_);
          if (Comm handle = std::exchange(handle_, nullptr)) {
            check(library().commDestroy(handle), "ncclCommDestroy");
          }
        },
        what, deadline, timeout);
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
