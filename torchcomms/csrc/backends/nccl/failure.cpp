// How a group ends when something has gone wrong.

#include "ctran/base/log.h"
#include "ctran/os/process.h"
#include "torchcomms/csrc/backends/nccl/group.hpp"
#include "torchcomms/csrc/backends/nccl/operation.hpp"
#include "torchcomms/csrc/backends/nccl/watchdog.hpp"

namespace torch::comms::nccl {

namespace {

using ctran::ErrorKind;

/// How long an abort lets another thread finish its call of the library.
constexpr std::chrono::milliseconds kAbortPatience{500};
/// How long a program that aborts waits for the kernels to end.
constexpr std::chrono::seconds kEndPatience{5};

}  // namespace

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

void Group::breakWith(const ctran::Error& error, bool announce) {
  {
    const std::lock_guard lock(errorMutex_);
    if (error_) return;
    error_ = error;
    announce_ = announce && setup_.bulletin;
  }
  broken_ = true;
  startAbort(shared_from_this());
  failOperations(error);
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
  const std::optional<Replays::Running> replayed = replays_.mostUrgent(Clock::now());
  if (awaited || (failed.empty() && !replayed)) return monitor().broken();
  // A replay has no work, but may be asked for by the next call.
  const OpName op = failed.empty() ? replayed->op : failed.front()->op();
  monitor().failed(std::string(toString(op)), std::make_exception_ptr(error),
                   reachable || failed.empty());
}

Comm Group::takeHandle() {
  // Whoever calls the library gets to know that the group is broken when the call ends. A call that
  // waits for other ranks ends when the handle is aborted, and only then.
  const std::unique_lock lock(inside_, kAbortPatience);
  if (!lock && leaving_) return nullptr;  // the library is taking it apart
  return std::atomic_ref(handle_).exchange(nullptr);
}

void Group::startAbort(std::shared_ptr<Group> self) {
  auto ended = std::make_shared<std::promise<void>>();
  const auto abort = [self, ended, &library = library(), &runtime = runtime(),
                      device = deviceIndex(), own = self ? nullptr : handle_] {
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
    kept_ > 0 ? ctran::startThread("nccl-abort", abort) : Watchdog::spawn("nccl-abort", abort);
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
  if (end.valid() && kept_ == 0) end.wait_for(kEndPatience);
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
