#include <algorithm>
#include <comms/torchcomms/TorchWork.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/os/process.h"

namespace torch::comms {

namespace {

using Clock = std::chrono::steady_clock;

/// How long a signal may go unnoticed.
constexpr std::chrono::milliseconds kWaitSlice{100};

WorkStatus statusOf(const std::exception_ptr& error) {
  if (!error) return WorkStatus::COMPLETED;
  try {
    std::rethrow_exception(error);
  } catch (const ctran::Error& e) {
    return e.kind() == ctran::ErrorKind::Timeout ? WorkStatus::TIMEDOUT : WorkStatus::ERROR;
  } catch (...) {
    return WorkStatus::ERROR;
  }
}

}  // namespace

struct TorchWorkThread::State {
  mutable std::mutex mutex;
  std::condition_variable changed;
  WorkStatus status = WorkStatus::INPROGRESS;
  std::exception_ptr error;
  std::vector<Hook> callbacks;
  std::thread::id thread;

  bool hasEnded() const { return status != WorkStatus::INPROGRESS; }

  void run(std::function<void()> function) {
    {
      const std::lock_guard lock(mutex);
      thread = std::this_thread::get_id();
    }
    std::exception_ptr thrown;
    try {
      function();
    } catch (...) {
      thrown = std::current_exception();
    }
    function = nullptr;  // what it holds goes before the operation counts as ended
    end(std::move(thrown));
  }

  void end(std::exception_ptr thrown) {
    std::vector<Hook> waiting;
    {
      const std::lock_guard lock(mutex);
      error = std::move(thrown);
      status = statusOf(error);
      waiting.swap(callbacks);
      changed.notify_all();
    }
    for (const Hook& callback : waiting) callback();
  }
};

TorchWorkThread::TorchWorkThread(std::function<void()> function)
    : state_(std::make_shared<State>()) {
  ctran::startThread("comms-work", [state = state_, function = std::move(function)]() mutable {
    state->run(std::move(function));
  });
}

TorchWorkThread::~TorchWorkThread() {
  const HostWait wait;
  std::unique_lock lock(state_->mutex);
  if (state_->thread == std::this_thread::get_id()) return;
  state_->changed.wait(lock, [&] { return state_->hasEnded(); });
}

WorkStatus TorchWorkThread::status() const {
  const std::lock_guard lock(state_->mutex);
  return state_->status;
}

std::exception_ptr TorchWorkThread::exception() const {
  const std::lock_guard lock(state_->mutex);
  return state_->error;
}

void TorchWorkThread::setCallback(Hook callback) {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->hasEnded()) {
      state_->callbacks.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

bool TorchWorkThread::doWait(std::optional<std::chrono::milliseconds> limit) {
  const HostWait wait;
  const Clock::time_point deadline = limit ? Clock::now() + *limit : Clock::time_point::max();
  std::unique_lock lock(state_->mutex);
  const auto hasEnded = [&] { return state_->hasEnded(); };
  while (!hasEnded()) {
    const Clock::time_point now = Clock::now();
    if (now >= deadline) return false;
    state_->changed.wait_until(lock, std::min(deadline, now + kWaitSlice), hasEnded);
    if (hasEnded()) break;
    lock.unlock();
    HostWait::checkInterrupts();
    lock.lock();
  }
  if (state_->error) std::rethrow_exception(state_->error);
  return true;
}

}  // namespace torch::comms
