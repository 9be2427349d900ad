#include "torchcomms/csrc/backends/stream/operation.hpp"

#include "torchcomms/csrc/backends/stream/group.hpp"
#include "torchcomms/csrc/backends/stream/waiting.hpp"

namespace torch::comms::stream {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// A blocked thread asks again this soon at first, and this late at last.
constexpr microseconds kFirstPause{5};
constexpr microseconds kLastPause{500};

}  // namespace

Operation::Operation(OpName op, std::shared_ptr<StreamGroup> group, uint64_t sequence,
                     milliseconds timeout, ctran::gpu::PooledEvent end, ctran::gpu::Stream stream,
                     std::optional<ctran::gpu::Stream> issuer, std::shared_ptr<void> held)
    : op_(op),
      group_(std::move(group)),
      sequence_(sequence),
      timeout_(timeout),
      deadline_(Clock::now() + timeout),
      end_(std::move(end)),
      stream_(stream),
      issuer_(issuer),
      held_(std::move(held)) {}

WorkStatus Operation::status() {
  if (status_ == WorkStatus::INPROGRESS) {
    try {
      if (isOver()) {
        if (!group_->isSound()) {
          group_->diagnose();
        } else if (const auto error = group_->error()) {
          fail(*error);  // it may have been ended
        } else {
          complete();
        }
      }
    } catch (const ctran::Error& error) {
      group_->breakWith(error);
    }
  }
  return status_;
}

bool Operation::isOver() const { return group_->runtime().isReached(end_.get()); }

void Operation::complete() { ended(WorkStatus::COMPLETED, nullptr); }

void Operation::fail(const ctran::Error& error) {
  ended(error.kind() == ctran::ErrorKind::Timeout ? WorkStatus::TIMEDOUT : WorkStatus::ERROR,
        &error);
}

void Operation::ended(WorkStatus status, const ctran::Error* error) {
  std::vector<std::function<void()>> callbacks;
  std::shared_ptr<void> held;
  {
    const std::lock_guard lock(mutex_);
    if (status_ != WorkStatus::INPROGRESS) return;
    if (error) {
      error_ = *error;  // what runs on the device may still touch what is held
    } else {
      held.swap(held_);
    }
    status_ = status;
    callbacks.swap(callbacks_);
  }
  for (const auto& callback : callbacks) callback();
}

void Operation::release() {
  std::shared_ptr<void> held;
  const std::lock_guard lock(mutex_);
  held.swap(held_);
}

std::exception_ptr Operation::exception() {
  if (status() == WorkStatus::COMPLETED) return nullptr;
  const std::lock_guard lock(mutex_);
  if (!error_) return nullptr;
  group_->monitor().seen();
  return std::make_exception_ptr(ctran::Error(*error_));
}

void Operation::throwIfFailed() {
  if (status_ <= WorkStatus::COMPLETED) [[likely]]
    return;
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
}

void Operation::orderBehind(ctran::gpu::Stream stream) {
  if (stream != stream_) {
    group_->runtime().check(group_->runtime().streamWaitEvent(stream, end_.get(), 0),
                            "making a stream wait");
  }
  if (issuer_ == stream) release();
}

bool Operation::block(std::optional<milliseconds> limit) {
  bool over = status() > WorkStatus::INPROGRESS;
  if (!over) {
    const HostWait wait;
    const Counted waiting(waiting_);
    const Clock::time_point now = Clock::now();
    const Clock::time_point until = limit ? now + *limit : Clock::time_point::max();
    for (Pauses pauses(kFirstPause, kLastPause);; pauses.rest()) {
      over = status() > WorkStatus::INPROGRESS;
      if (over || Clock::now() >= until) break;
    }
  }
  throwIfFailed();
  return over;
}

void Operation::setCallback(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (status_ == WorkStatus::INPROGRESS) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

void Operation::abandon() {
  reachable_ = false;
  if (status_ <= WorkStatus::COMPLETED) return;
  std::optional<ctran::Error> error;
  {
    const std::lock_guard lock(mutex_);
    error = error_;
  }
  if (error) {
    group_->monitor().dropped(std::string(toString(op_)), std::make_exception_ptr(*error));
  }
}

bool StreamWork::doWait(std::optional<milliseconds> limit) {
  if (limit) return doWaitBlocking(limit);
  operation_->throwIfFailed();
  const StreamGroup& group = *operation_->group();
  const ctran::gpu::Stream current = group.currentStream();
  if (group.runtime().isCapturing(current)) [[unlikely]] {
    if (operation_->status() == WorkStatus::COMPLETED) return true;
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "wait() of an operation that was issued before the capture that goes on now",
                       {}, std::string(toString(operation_->op())), "wait before you capture");
  }
  operation_->orderBehind(current);
  return true;
}

bool StreamWork::doWaitBlocking(std::optional<milliseconds> limit) {
  if (!operation_->block(limit)) return false;
  operation_->release();
  return true;
}

}  // namespace torch::comms::stream
