// How a group ends when something has gone wrong.

#include <thread>

#include "ctran/base/log.h"
#include "ctran/os/process.h"
#include "ctran/stream/watchdog.h"
#include "torchcomms/csrc/backends/nccl/group.hpp"

namespace torch::comms::nccl {

namespace {

using ctran::ErrorKind;

/// How long an abort lets another thread finish its call of the library.
constexpr std::chrono::milliseconds kAbortPatience{500};
/// How long a program that aborts waits for the kernels to end.
constexpr std::chrono::seconds kEndPatience{5};
/// How long a process that may end waits until the other ranks have been told.
constexpr std::chrono::milliseconds kTellingPatience{500};
/// How long the other ranks may take to let go of their last graphs, and how often we look.
constexpr std::chrono::seconds kLeavePatience{10};
constexpr std::chrono::milliseconds kLeaveInterval{1};

/// Makes the library destroy `handle`, which all ranks do; returns whether it has. An abort could
/// end what other ranks are still in, of an operation that has ended here.
bool takeApart(const Library& library, Comm handle) {
  Result state = library.commFinalize(handle);
  const auto until = Clock::now() + kLeavePatience;
  while (state == Result::InProgress && Clock::now() < until) {
    std::this_thread::sleep_for(kLeaveInterval);
    if (library.commGetAsyncError(handle, &state) != Result::Success) return false;
  }
  if (state != Result::Success) return false;
  library.commDestroy(handle);  // whatever it says, there is nothing left to abort
  return true;
}

}  // namespace

std::function<void()> Group::announce(const ctran::Error& error) {
  if (!setup_.outOfBand) return {};
  const std::shared_future<bool> told = setup_.outOfBand->announce(error);
  return [told] {
    const HostWait wait;
    told.wait_for(kTellingPatience);
  };
}

std::optional<std::string_view> Group::replayed() {
  try {
    const std::optional<Replays::Running> running = replays_.mostUrgent(Clock::now());
    return running ? std::optional(running->name) : std::nullopt;
  } catch (const ctran::Error&) {  // the device is lost
    return std::nullopt;
  }
}

Comm Group::takeHandle() {
  // A thread that calls the library learns that the group is broken when the call ends. A call that
  // waits for other ranks ends when the handle is aborted, and only then.
  const std::unique_lock lock(inside_, kAbortPatience);
  if (!lock && leaving_) return nullptr;  // the library is taking it apart
  return std::atomic_ref(handle_).exchange(nullptr);
}

void Group::startAbort(std::shared_ptr<Group> self) {
  if (!belongsHere()) return;
  auto ended = std::make_shared<std::promise<void>>();
  const auto abort = [self, ended, &library = library(), &runtime = runtime(), device = device(),
                      own = self ? nullptr : handle_, finalized = finalized_ && !isBroken()] {
    if (self) self->callOnBreak();
    if (Comm handle = self ? self->takeHandle() : own) {
      try {
        const ctran::gpu::ActiveDevice active(runtime, device);
        const ctran::gpu::RelaxedCapture relaxed(runtime);
        if (!finalized || !takeApart(library, handle)) library.commAbort(handle);
      } catch (const ctran::Error& error) {
        ctran::log(ctran::LogComponent::Torch, ctran::LogLevel::Warn,
                   "a communicator could not be aborted: %s", error.what());
      }
    }
    ended->set_value();
  };
  if (!self && !handle_) return;
  if (self) {
    const std::lock_guard lock(errorMutex_);
    abort_ = ended->get_future().share();
  }
  try {
    // The library waits for graphs to go: then the thread may never end.
    hasGraphs() ? ctran::startThread("nccl-abort", abort)
                : ctran::Watchdog::spawn("nccl-abort", abort);
  } catch (const ctran::Error&) {
    abort();
  }
}

void Group::awaitEnd() {
  std::shared_future<void> end;
  {
    const std::lock_guard lock(errorMutex_);
    end = abort_;
  }
  const HostWait wait;
  if (end.valid() && !hasGraphs()) end.wait_for(kEndPatience);
}

void Group::close(const std::string& why) {
  observer().seen();
  if (hasGraphs() || finalized_) return;  // graphs may be replayed yet, or have just gone
  try {
    retireEnded();
  } catch (const ctran::Error&) {  // the device is lost
  }
  breakWith(ctran::Error(ErrorKind::Aborted, "Communicator '" + setup_.name + "' " + why),
            !isIdle());
}

}  // namespace torch::comms::nccl
