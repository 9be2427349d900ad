// A group's calls of the library.

#include "ctran/base/counted.h"
#include "ctran/stream/backoff.h"
#include "torchcomms/csrc/backends/nccl/group.hpp"
#include "torchcomms/csrc/engine_wait_hooks.hpp"

namespace torch::comms::nccl {

namespace {

using ctran::ErrorKind;
using std::chrono::microseconds;
using std::chrono::milliseconds;

/// An operation of a warm communicator has been taken over by then.
constexpr microseconds kSpin{100};
constexpr microseconds kFirstPause{20};
constexpr microseconds kLongestPause{1000};

}  // namespace

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

bool Group::isSettled(const std::function<std::string()>& what) {
  const std::lock_guard lock(inside_);
  throwIfBroken();
  Result state = Result::InProgress;
  if (handle_) check(library().commGetAsyncError(handle_, &state), "ncclCommGetAsyncError");
  if (state == Result::InProgress) return false;
  unsettled_ = false;
  check(state, what().c_str());
  return true;
}

void Group::settle(const std::function<std::string()>& what, Clock::time_point deadline,
                   milliseconds timeout) {
  const Clock::time_point spun = Clock::now() + kSpin;
  while (Clock::now() < spun) {
    if (isSettled(what)) return;
  }
  EngineWaitHooks hooks;
  const ctran::Blocking blocking(&hooks);
  for (ctran::Backoff backoff(kFirstPause, kLongestPause, &hooks); !isSettled(what);
       backoff.pause()) {
    if (Clock::now() >= deadline) throw timedOut(what(), timeout);
  }
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

void Group::issue(OpName op, bool grouped, milliseconds timeout,
                  const std::function<void(Comm)>& calls) {
  // Before inside_: whoever waits for the interpreter lock must not keep others from the handle.
  const HostWait wait;
  const ctran::Counted calling(calling_);
  // The watchdog sees when it takes too long, and breaks the group.
  const auto settled = [&] {
    settle([&] { return describe(toString(op)); }, Clock::time_point::max(), timeout);
  };
  try {
    const Inside inside(*this, op, timeout);
    if (unsettled_) settled();
    if (!hand(op, grouped, calls)) settled();
  } catch (const ctran::Error& error) {
    throwIfBroken();  // what broke it says more than how the call ended
    const bool refused = error.kind() == ErrorKind::InvalidArgument && isUsable();
    if (!refused) {
      observer().seen();
      breakWith(error);
    }
    throw;
  }
}

bool Group::hand(OpName op, bool grouped, const std::function<void(Comm)>& calls) {
  const std::lock_guard lock(inside_);
  throwIfBroken();
  if (grouped) check(library().groupStart(), "ncclGroupStart");
  try {
    calls(handle_);
  } catch (...) {
    if (grouped) library().groupEnd();  // else this thread's later calls would join the group
    throw;
  }
  if (grouped) check(library().groupEnd(), "ncclGroupEnd");
  throwIfBroken();  // an abort has not waited for this call: the handle has gone
  Result state = Result::Success;
  check(library().commGetAsyncError(handle_, &state), "ncclCommGetAsyncError");
  unsettled_ = state == Result::InProgress;
  if (!unsettled_) check(state, toString(op).data());
  return !unsettled_;
}

bool Group::isUsable() {
  const std::lock_guard lock(inside_);
  Result state = Result::Success;
  return handle_ && library().commGetAsyncError(handle_, &state) == Result::Success &&
         state == Result::Success;
}

void* Group::registerMemory(void* address, size_t bytes) {
  const HostWait wait;
  const ctran::gpu::ActiveDevice active(runtime(), device());
  const std::lock_guard lock(inside_);
  throwIfBroken();
  void* handle = nullptr;
  check(library().commRegister(handle_, address, bytes, &handle), "ncclCommRegister");
  return handle;
}

void Group::deregisterMemory(void* handle) {
  const HostWait wait;
  const ctran::gpu::ActiveDevice active(runtime(), device());
  const std::lock_guard lock(inside_);
  // An aborted communicator has let go of it already.
  if (handle && handle_) check(library().commDeregister(handle_, handle), "ncclCommDeregister");
}

}  // namespace torch::comms::nccl
