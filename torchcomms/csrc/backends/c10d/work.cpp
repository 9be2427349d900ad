#include "torchcomms/csrc/backends/c10d/work.hpp"

#include <algorithm>

#include "ctran/base/error.h"
#include "torchcomms/csrc/backends/c10d/errors.hpp"

namespace torch::comms {

namespace {

using Clock = std::chrono::steady_clock;

/// How long a signal may go unnoticed.
constexpr std::chrono::milliseconds kSlice{100};
constexpr std::chrono::hours kForever{24 * 365};

}  // namespace

void C10dOperation::started() {
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    if (!ended()) status_ = WorkStatus::INPROGRESS;
    callbacks.swap(startCallbacks_);
  }
  for (const auto& callback : callbacks) callback();
}

void C10dOperation::partEnded(const std::exception_ptr& error) {
  std::vector<std::function<void()>> callbacks;
  bool unseen = false;
  bool reachable = true;
  {
    const std::lock_guard lock(mutex_);
    if (ended()) return;
    if (error) {
      error_ = error;
      status_ = isTimeout(error) ? WorkStatus::TIMEDOUT : WorkStatus::ERROR;
      unseen = waiting_ == 0;
      reachable = reachable_;
    } else {
      if (--left_ > 0) return;
      status_ = WorkStatus::COMPLETED;
    }
    callbacks.swap(callbacks_);
    endedCondition_.notify_all();
  }
  if (unseen) monitor_->failed(std::string(toString(op_)), error, reachable);
  for (const auto& callback : callbacks) callback();
}

WorkStatus C10dOperation::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

std::exception_ptr C10dOperation::exception() const {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = error_;
  }
  if (error) monitor_->seen();
  return error;
}

bool C10dOperation::wait(std::optional<std::chrono::milliseconds> limit) {
  std::unique_lock lock(mutex_);
  if (!ended()) {
    ++waiting_;
    lock.unlock();
    try {
      block(limit);
    } catch (...) {  // Ctrl-C ends the wait, not the operation
      lock.lock();
      --waiting_;
      throw;
    }
    lock.lock();
    --waiting_;
  }
  const bool over = ended();
  const std::exception_ptr error = error_;
  lock.unlock();
  if (error) {
    monitor_->seen();
    std::rethrow_exception(error);
  }
  return over;
}

void C10dOperation::block(std::optional<std::chrono::milliseconds> limit) {
  if (process_ != ctran::processToken()) {  // a forked child has none of the threads that end it
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "the work belongs to the process that forked this one");
  }
  const HostWait hostWait;
  const Clock::time_point deadline = Clock::now() + limit.value_or(kForever);
  std::unique_lock lock(mutex_);
  while (!ended()) {
    const Clock::time_point now = Clock::now();
    if (now >= deadline) return;
    const auto slice = std::min<Clock::duration>(deadline - now, kSlice);
    if (endedCondition_.wait_for(lock, slice, [&] { return ended(); })) return;
    lock.unlock();
    HostWait::checkInterrupts();
    lock.lock();
  }
}

void C10dOperation::setCallback(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!ended()) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

void C10dOperation::setStartCallback(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (status_ == WorkStatus::NOT_STARTED) {
      startCallbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

void C10dOperation::released() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    reachable_ = false;
    error = error_;
  }
  if (error) monitor_->dropped(std::string(toString(op_)), error);
}

}  // namespace torch::comms
