// How a group ends when something has gone wrong.

#include "ctran/base/log.h"
#include "ctran/os/process.h"
#include "torchcomms/csrc/backends/nccl/group.hpp"
#include "torchcomms/csrc/backends/stream/watchdog.hpp"

namespace torch::comms::nccl {

namespace {

using ctran::ErrorKind;

/// How long an abort lets another thread finish its call of the library.
constexpr std::chrono::milliseconds kAbortPatience{500};
/// How long a program that aborts waits for the kernels to end.
constexpr std::chrono::seconds kEndPatience{5};

}  // namespace

std::optional<OpName> Group::replayed() {
  try {
    const std::optional<Replays::Running> running = replays_.mostUrgent(Clock::now());
    return running ? std::optional(running->op) : std::nullopt;
  } catch (const ctran::Error&) {  // the device is lost
    return std::nullopt;
  }
}

Comm Group::takeHandle() {
  // Whoever calls the library gets to know that the group is broken when the call ends. A call that
  // waits for other ranks ends when the handle is aborted, and only then.
  const std::unique_lock lock(inside_, kAbortPatience);
  if (!lock && leaving_) return nullptr;  // the library is taking it apart
  return std::atomic_ref(handle_).exchange(nullptr);
}

void Group::startAbort(std::shared_ptr<Group> self) {
  if (!belongsHere()) return;
  auto ended = std::make_shared<std::promise<void>>();
  const auto abort = [self, ended, &library = library(), &runtime = runtime(),
                      device = deviceIndex(), own = self ? nullptr : handle_] {
    if (self) self->releaseAll();
    if (Comm handle = self ? self->takeHandle() : own) {
      try {
        const ctran::gpu::ActiveDevice active(runtime, device);
        const ctran::gpu::RelaxedCapture relaxed(runtime);
        library.commAbort(handle);
      } catch (const ctran::Error& error) {
        ctran::log(ctran::LogLevel::Warn, "a communicator could not be aborted: %s", error.what());
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
    isKept() ? ctran::startThread("nccl-abort", abort)
             : stream::Watchdog::spawn("nccl-abort", abort);
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
  if (end.valid() && !isKept()) end.wait_for(kEndPatience);
}

void Group::close() {
  monitor().seen();
  if (isKept()) return;  // graphs may be replayed yet
  try {
    retireEnded();
  } catch (const ctran::Error&) {  // the device is lost
  }
  breakWith(
      ctran::Error(ErrorKind::Aborted, "Communicator '" + setup_.name + "' has gone on rank " +
                                           std::to_string(rank()) + " without finalize()"),
      !isIdle());
}

}  // namespace torch::comms::nccl
