#include "torchcomms/csrc/c10d/combined_work.hpp"

#include <algorithm>
#include <atomic>

#include "ctran/base/error.h"

namespace torch::comms {

c10::intrusive_ptr<TorchWork> CombinedWork::of(std::vector<c10::intrusive_ptr<TorchWork>> works) {
  if (works.empty()) return TorchWorkCompleted::shared();
  if (works.size() == 1) return std::move(works.front());
  return c10::make_intrusive<CombinedWork>(std::move(works));
}

WorkStatus CombinedWork::status() const {
  WorkStatus all = WorkStatus::COMPLETED;
  WorkStatus failed = WorkStatus::COMPLETED;
  for (const auto& work : works_) {
    const WorkStatus one = work->status();
    if (one == WorkStatus::NOT_STARTED || one == WorkStatus::INPROGRESS) {
      all = WorkStatus::INPROGRESS;
    } else if (one != WorkStatus::COMPLETED && failed == WorkStatus::COMPLETED) {
      failed = one;
    }
  }
  return all == WorkStatus::INPROGRESS ? all : failed;
}

bool CombinedWork::doWait(std::optional<std::chrono::milliseconds> limit) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  return std::all_of(works_.begin(), works_.end(), [&](const auto& work) {
    if (!limit) return work->wait(), true;
    const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
    return work->wait(std::max(*limit - spent, std::chrono::milliseconds(0)));
  });
}

std::exception_ptr CombinedWork::exception() const {
  for (const auto& work : works_) {
    if (const std::exception_ptr error = work->exception()) return error;
  }
  return nullptr;
}

void CombinedWork::setCallback(std::function<void()> callback) {
  const auto left = std::make_shared<std::atomic<size_t>>(works_.size());
  const auto shared = std::make_shared<std::function<void()>>(std::move(callback));
  for (const auto& work : works_) {
    work->setCallback([left, shared] {
      if (--*left == 0) (*shared)();
    });
  }
}

void DeferredWork::issuedAs(const c10::intrusive_ptr<TorchWork>& work) {
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    work_ = work;
    callbacks.swap(callbacks_);
  }
  for (auto& callback : callbacks) work->setCallback(std::move(callback));
}

c10::intrusive_ptr<TorchWork> DeferredWork::issued() const {
  const std::lock_guard lock(mutex_);
  return work_;
}

c10::intrusive_ptr<TorchWork> DeferredWork::require() const {
  auto work = issued();
  if (!work) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "wait() for a send or receive that has not been issued yet: they are "
                       "collected until the coalescing ends",
                       {}, "wait", "wait after endCoalescing, best for the work it returns");
  }
  return work;
}

bool DeferredWork::doWait(std::optional<std::chrono::milliseconds> limit) {
  const auto work = require();
  if (limit) return work->wait(*limit);
  work->wait();
  return true;
}

WorkStatus DeferredWork::status() const {
  const auto work = issued();
  return work ? work->status() : WorkStatus::NOT_STARTED;
}

std::exception_ptr DeferredWork::exception() const {
  const auto work = issued();
  return work ? work->exception() : nullptr;
}

void DeferredWork::setCallback(std::function<void()> callback) {
  c10::intrusive_ptr<TorchWork> work;
  {
    const std::lock_guard lock(mutex_);
    if (!work_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
    work = work_;
  }
  work->setCallback(std::move(callback));
}

}  // namespace torch::comms
