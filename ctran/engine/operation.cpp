#include "ctran/engine/operation.h"

#include "ctran/base/clock.h"
#include "ctran/engine/progress.h"
#include "ctran/engine/waiter.h"

namespace ctran {
namespace {

/// A callback that throws, which it must not, breaks the communicator, and keeps none of the
/// others.
void call(const std::function<void()>& callback, Core& core) {
  try {
    callback();
  } catch (...) {
    core.failCaughtHere("a callback of a work");
  }
}

void callAll(const std::vector<std::function<void()>>& callbacks, Core& core) {
  for (const auto& callback : callbacks) call(callback, core);
}

}  // namespace

Operation::Operation(OperationQueue& queue, std::shared_ptr<void> owner, Collective&& collective,
                     std::vector<std::byte> scratch, std::shared_ptr<void> keepAlive,
                     int64_t timeoutNanos)
    : queue_(queue),
      owner_(std::move(owner)),
      collective_(std::move(collective)),
      scratch_(std::move(scratch)),
      keepAlive_(std::move(keepAlive)),
      timeoutNanos_(timeoutNanos),
      deadlineNanos_(nowNanos() + timeoutNanos) {}

void Operation::finish(std::optional<Error> error) {
  {
    std::lock_guard lock(mutex_);
    error_ = std::move(error);
    state_.store(error_ ? WorkState::Failed : WorkState::Completed, std::memory_order_seq_cst);
  }
  queue_.core.wakeOwn();
}

void Operation::tellStarted() {
  std::vector<std::function<void()>> callbacks;
  {
    std::lock_guard lock(mutex_);
    if (startCallbacks_.empty()) return;
    callbacks.swap(startCallbacks_);
    tellingStart_ = true;
  }
  callAll(callbacks, queue_.core);
  bool hasEnded;
  {
    std::lock_guard lock(mutex_);
    tellingStart_ = false;
    hasEnded = endIsUntold_;
  }
  if (hasEnded) tell();
}

void Operation::tell() {
  std::vector<std::function<void()>> started;  // of one that never waited, or failed before
  std::vector<std::function<void()>> ended;
  {
    std::lock_guard lock(mutex_);
    if (tellingStart_) {  // by another thread, for which this one must not wait
      endIsUntold_ = true;
      return;
    }
    started.swap(startCallbacks_);
    ended.swap(callbacks_);
  }
  callAll(started, queue_.core);
  callAll(ended, queue_.core);
  keepAlive_.reset();
}

std::exception_ptr Operation::error() const {
  if (state() != WorkState::Failed) return nullptr;
  std::lock_guard lock(mutex_);
  return std::make_exception_ptr(*error_);
}

void Operation::onStart(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    // A start that this does not see yet tells later, with the lock.
    if (state() == WorkState::Queued) {
      startCallbacks_.push_back(std::move(callback));
      return;
    }
  }
  call(callback, queue_.core);
}

void Operation::onDone(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (!done()) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  call(callback, queue_.core);
}

void Operation::interrupt() {
  queue_.core.fail(queue_.core.interruptedError(collective_.describe()));
}

void Operation::wait(WaitHooks* hooks) { drive(INT64_MAX, hooks); }

bool Operation::waitFor(std::chrono::nanoseconds limit, WaitHooks* hooks) {
  const int64_t now = nowNanos();
  return drive(limit.count() < INT64_MAX - now ? now + limit.count() : INT64_MAX, hooks);
}

bool Operation::drive(int64_t limitNanos, WaitHooks* hooks) {
  if (!done() && !driveUntil(limitNanos, hooks)) return false;
  if (auto failure = error()) std::rethrow_exception(failure);
  return true;
}

bool Operation::driveUntil(int64_t limitNanos, WaitHooks* hooks) {
  struct Waiting {  // while a thread waits here, the progress thread leaves the queue alone
    OperationQueue& queue;
    explicit Waiting(OperationQueue& queue) : queue(queue) { ++queue.waiters; }
    ~Waiting() {
      --queue.waiters;
      if (!queue.idle()) Progress::poke(Progress::When::Lazily);
    }
  };
  if (!queue_.core.belongsHere()) throw queue_.core.forkError();
  Waiter waiter(queue_.core, hooks);
  const Waiting waiting(queue_);  // ends before the host language is told, which may take a while
  while (!done()) {
    if (queue_.advance()) continue;
    if (limitNanos != INT64_MAX && nowNanos() >= limitNanos) return done();
    const int awaited = queue_.awaited();
    try {
      waiter.pause(
          awaited, [&] { return !done() && queue_.stillWaitsFor(awaited); },
          [&](int64_t now) { return std::min(queue_.checkStuck(now), limitNanos); });
    } catch (const Error&) {
      // The communicator broke; the next advance() ends this operation with that error. What an
      // interruption throws is no Error: it ends the wait and the operation goes on.
    }
  }
  return true;
}

}  // namespace ctran
