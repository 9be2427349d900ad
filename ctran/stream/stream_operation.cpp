#include "ctran/stream/stream_operation.h"

#include <utility>

#include "ctran/base/counted.h"
#include "ctran/stream/backoff.h"
#include "ctran/stream/error_observer.h"
#include "ctran/stream/stream_queue.h"

namespace ctran {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// A blocked thread asks again this soon at first, and this late at last.
constexpr microseconds kFirstBlockPause{5};
constexpr microseconds kLongestBlockPause{500};
/// A limit above this is none: the clock could not count that far.
constexpr std::chrono::hours kNoLimit{24 * 365};

}  // namespace

StreamOperation::StreamOperation(Description description, std::shared_ptr<StreamQueue> queue,
                                 gpu::PooledEvent end, gpu::Stream stream,
                                 std::optional<gpu::Stream> issuer)
    : description_{description.name,
                   description.sequence,
                   description.timeout,
                   std::move(description.awaited),
                   nullptr,
                   std::move(description.timing)},
      queue_(std::move(queue)),
      deadline_(Clock::now() + description.timeout),
      end_(std::move(end)),
      stream_(stream),
      issuer_(issuer),
      keepAlive_(std::move(description.keepAlive)) {}

WorkState StreamOperation::state() const {
  if (state_ == WorkState::Running) {
    try {
      if (isOver()) {
        if (!queue_->isSound()) {
          queue_->diagnose();
        } else if (const auto error = queue_->error()) {
          fail(*error);  // its kernel may have been told to end
        } else {
          complete();
        }
      }
    } catch (const Error& error) {
      queue_->breakWith(error);
    }
  }
  return state_;
}

bool StreamOperation::isOver() const { return queue_->runtime().isReached(end_.get()); }

std::optional<DeviceSpan> StreamOperation::deviceSpan() const {
  return description_.timing ? description_.timing->until(end_.get()) : std::nullopt;
}

void StreamOperation::complete() const { end(WorkState::Completed, nullptr); }

void StreamOperation::fail(const Error& error) const { end(WorkState::Failed, &error); }

void StreamOperation::end(WorkState state, const Error* error) const {
  std::vector<std::function<void()>> callbacks;
  std::shared_ptr<void> keepAlive;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != WorkState::Running) return;
    if (error != nullptr) {
      error_ = *error;  // the device may still touch the buffers: they stay
    } else {
      keepAlive.swap(keepAlive_);
    }
    state_ = state;
    callbacks.swap(callbacks_);
  }
  for (const auto& callback : callbacks) callback();
}

void StreamOperation::release() const {
  std::shared_ptr<void> keepAlive;
  const std::lock_guard lock(mutex_);
  keepAlive.swap(keepAlive_);
}

std::exception_ptr StreamOperation::error() const {
  if (state() == WorkState::Completed) return nullptr;
  const std::lock_guard lock(mutex_);
  if (!error_) return nullptr;
  queue_->observer().seen();
  return std::make_exception_ptr(Error(*error_));
}

std::optional<ErrorKind> StreamOperation::failure() const {
  const std::lock_guard lock(mutex_);
  return error_ ? std::optional(error_->kind()) : std::nullopt;
}

void StreamOperation::throwIfFailed() {
  if (state_ != WorkState::Failed) [[likely]]
    return;
  if (const std::exception_ptr failure = error()) std::rethrow_exception(failure);
}

void StreamOperation::makeWait(gpu::Stream stream) {
  throwIfFailed();
  if (queue_->runtime().isCapturing(stream)) [[unlikely]] {
    if (state() == WorkState::Completed) return;
    throw Error(ErrorKind::InvalidArgument,
                "wait() of an operation that was issued before the capture that goes on now", {},
                std::string(name()), "wait before you capture");
  }
  orderBehind(stream);
}

void StreamOperation::orderBehind(gpu::Stream stream) {
  if (stream != stream_) {
    const gpu::Runtime& runtime = queue_->runtime();
    runtime.check(runtime.streamWaitEvent(stream, end_.get(), 0), "making a stream wait");
  }
  if (issuer_ == stream) release();
}

bool StreamOperation::waitFor(std::chrono::nanoseconds limit, WaitHooks* hooks) {
  return block(std::chrono::ceil<milliseconds>(limit), hooks);
}

bool StreamOperation::block(std::optional<milliseconds> limit, WaitHooks* hooks) {
  const auto hasEnded = [&] { return state() != WorkState::Running; };
  bool ended = hasEnded();
  if (!ended) {
    const Blocking blocking(hooks);
    const Counted waiting(waiting_);
    const bool isLimited = limit && *limit < kNoLimit;
    const auto until = isLimited ? Clock::now() + *limit : Clock::time_point::max();
    for (Backoff backoff(kFirstBlockPause, kLongestBlockPause, hooks);; backoff.pause()) {
      ended = hasEnded();
      if (ended || Clock::now() >= until) break;
    }
  }
  throwIfFailed();
  return ended;
}

void StreamOperation::onDone(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == WorkState::Running) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

void StreamOperation::abandon() {
  reachable_ = false;
  if (state_ != WorkState::Failed) return;
  std::optional<Error> error;
  {
    const std::lock_guard lock(mutex_);
    error = error_;
  }
  if (error) queue_->observer().dropped(std::string(name()), std::make_exception_ptr(*error));
}

void StreamOperation::interrupt() {
  queue_->breakWith(Error(ErrorKind::Aborted, queue_->describe(name()) + " was interrupted",
                          {queue_->rank()}, std::string(name())));
}

}  // namespace ctran
