#include "torchcomms/csrc/backends/nccl/group.hpp"

#include <algorithm>
#include <condition_variable>
#include <thread>

#include "ctran/base/log.h"
#include "ctran/os/process.h"
#include "torchcomms/csrc/backends/stream/operation.hpp"
#include "torchcomms/csrc/backends/stream/watchdog.hpp"

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

Group::Group(GroupSetup setup)
    : stream::StreamGroup({setup.runtime, setup.device, setup.name, setup.rank, setup.size,
                           setup.highPriority, setup.hints.mostIdleEvents,
                           setup.hints.checkInterval, setup.monitor}),
      setup_(std::move(setup)) {}

Group::~Group() { abortHandle(); }

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
  ctran::startThread("nccl-errand", [self = self(), errand, call] {
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
  parent.askToSplit(self(), color, key, deadline, timeout);
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
  if (isKept()) {
    ctran::startThread("nccl-abort", abort);  // the library waits for the graphs to go
  } else {
    abort();
  }
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

void Group::finalize(Clock::time_point deadline, milliseconds timeout) {
  drain();
  requireWhole();
  if (setup_.bulletin) setup_.bulletin->leave();
  // The library would wait for the graphs to go, and they may be replayed until then: the last of
  // them takes the group along.
  if (!isKept()) leave(deadline, timeout);
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
  if (isKept()) return;  // graphs may be replayed yet
  breakWith(
      ctran::Error(ErrorKind::Aborted, "Communicator '" + setup_.name + "' has gone on rank " +
                                           std::to_string(rank()) + " without finalize()"),
      !isIdle());
}

}  // namespace torch::comms::nccl
