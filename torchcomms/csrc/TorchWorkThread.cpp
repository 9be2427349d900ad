#include <algorithm>
#include <comms/torchcomms/TorchWork.hpp>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <vector>

#include "ctran/base/error.h"

namespace torch::comms {

namespace {

using Clock = std::chrono::steady_clock;

/// How long a signal may go unnoticed.
constexpr std::chrono::milliseconds kSlice{100};

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
  auto run = [state = state_, function = std::move(function)]() mutable {
    std::exception_ptr thrown;
    try {
      function();
    } catch (...) {
      thrown = std::current_exception();
    }
    function = nullptr;  // what it holds goes before the operation counts as ended
    state->end(std::move(thrown));
  };
  try {
    thread_ = std::thread(std::move(run));
  } catch (const std::system_error& error) {
    throw ctran::Error(ctran::ErrorKind::System,
                       std::string("No thread could be started for an operation: ") + error.what());
  }
}

TorchWorkThread::~TorchWorkThread() {
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    const HostWait wait;
    thread_.join();
  }
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
    if (state_->status == WorkStatus::INPROGRESS) {
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
  const auto hasEnded = [&] { return state_->status != WorkStatus::INPROGRESS; };
  while (!hasEnded()) {
    const Clock::time_point now = Clock::now();
    if (now >= deadline) return false;
    state_->changed.wait_until(lock, std::min(deadline, now + kSlice), hasEnded);
    if (hasEnded()) break;
    lock.unlock();
    HostWait::checkInterrupts();
    lock.lock();
  }
  if (state_->error) std::rethrow_exception(state_->error);
  return true;
}

}  // namespace torch::comms
