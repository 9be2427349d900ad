#include "torchcomms/csrc/combined_work.hpp"

#include <algorithm>
#include <atomic>

#include "ctran/base/error.h"

namespace torch::comms {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

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

bool CombinedWork::doWait(std::optional<milliseconds> limit) {
  if (!limit) {
    for (const auto& work : works_) work->wait();
    return true;
  }
  const Clock::time_point deadline = Clock::now() + *limit;
  return std::all_of(works_.begin(), works_.end(), [&](const auto& work) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    return work->wait(std::max(left, milliseconds(0)));
  });
}

bool CombinedWork::doWaitBlocking(std::optional<milliseconds> limit) {
  if (limit) return doWait(limit);  // which blocks
  for (const auto& work : works_) work->waitBlocking();
  return true;
}

std::exception_ptr CombinedWork::exception() const {
  for (const auto& work : works_) {
    if (const std::exception_ptr error = work->exception()) return error;
  }
  return nullptr;
}

void CombinedWork::setStartCallback(Hook callback) {
  const auto told = std::make_shared<std::atomic<bool>>(false);
  const auto shared = std::make_shared<Hook>(std::move(callback));
  for (const auto& work : works_) {
    work->registerWorkStartHook([told, shared] {
      if (!told->exchange(true)) (*shared)();
    });
  }
}

void CombinedWork::setCallback(Hook callback) {
  const auto left = std::make_shared<std::atomic<size_t>>(works_.size());
  const auto shared = std::make_shared<Hook>(std::move(callback));
  for (const auto& work : works_) {
    work->setCallback([left, shared] {
      if (--*left == 0) (*shared)();
    });
  }
}

void DeferredWork::issuedAs(const c10::intrusive_ptr<TorchWork>& work) {
  std::vector<Hook> callbacks;
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

WorkStatus DeferredWork::status() const {
  const auto work = issued();
  return work ? work->status() : WorkStatus::NOT_STARTED;
}

std::exception_ptr DeferredWork::exception() const {
  const auto work = issued();
  return work ? work->exception() : nullptr;
}

bool DeferredWork::doWait(std::optional<milliseconds> limit) {
  const auto work = require();
  if (limit) return work->wait(*limit);
  work->wait();
  return true;
}

bool DeferredWork::doWaitBlocking(std::optional<milliseconds> limit) {
  if (limit) return doWait(limit);  // which blocks
  require()->waitBlocking();
  return true;
}

void DeferredWork::setCallback(Hook callback) {
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
