#include "torchcomms/csrc/c10d/work_wrapper.hpp"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <atomic>

#include "ctran/base/error.h"
#include "torchcomms/csrc/c10d/callback_thread.hpp"
#include "torchcomms/csrc/longest_timeout.hpp"

namespace torch::comms {

namespace {

using c10::ivalue::Future;

uint64_t nextKey() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

c10d::WorkResult resultOf(const TorchWork& work) {
  switch (work.status()) {
    case WorkStatus::COMPLETED:
      return c10d::WorkResult::SUCCESS;
    case WorkStatus::TIMEDOUT:
      return c10d::WorkResult::TIMEOUT;
    case WorkStatus::ERROR:
      return c10d::WorkResult::COMM_ERROR;
    default:
      return c10d::WorkResult::UNKNOWN;
  }
}

/// Calls `end` once the work has ended: at once if it has, else on a thread of callbacks.
void whenEnded(const c10::intrusive_ptr<TorchWork>& work, std::function<void()> end) {
  if (work->isCompleted()) return end();
  startCallbacks();
  // The work lives until it has ended: what waits for the future shall learn of its error.
  work->setCallback([work, end = std::move(end), isAwaited = expectCallback()]() mutable {
    postCallback([work, end = std::move(end)] { end(); }, isAwaited);
  });
}

}  // namespace

WorkWrapper::WorkWrapper(c10::intrusive_ptr<TorchWork> work, const Facts& facts,
                         std::vector<at::Tensor> results)
    : c10d::Work(facts.rank, facts.type),
      work_(std::move(work)),
      facts_(facts),
      results_(std::move(results)),
      key_(nextKey()) {}

int WorkWrapper::sourceRank() const {
  if (retrieveOpType() == c10d::OpType::RECVANYSOURCE) return work_->sourceRank();
  throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                     "sourceRank() is for works of recv_anysource alone");
}

bool WorkWrapper::wait(std::chrono::milliseconds timeout) {
  if (timeout == ::kNoTimeout) {
    work_->wait();
  } else if (!work_->wait(std::min(timeout, kLongestTimeout))) {
    throw ctran::Error(ctran::ErrorKind::Timeout,
                       std::string(toString(facts_.name)) + " on rank " +
                           std::to_string(facts_.rank) + " has not ended after " +
                           std::to_string(timeout.count()) + " ms of wait(); it goes on",
                       {}, std::string(toString(facts_.name)));
  }
  return true;
}

c10::intrusive_ptr<Future> WorkWrapper::getFuture() {
  {
    const std::lock_guard lock(mutex_);
    if (future_) return future_;
  }
  std::vector<c10::Device> devices;
  for (const at::Tensor& t : results_) {
    const bool known = std::find(devices.begin(), devices.end(), t.device()) != devices.end();
    if (!t.is_cpu() && !known) devices.push_back(t.device());
  }
  // What may ask for the interpreter's lock is done without this one: waits, tensors, callbacks.
  const auto made =
      c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()), devices);
  if (!devices.empty()) {
    // The order of streams is what counts: the current one waits, and the future remembers that.
    work_->wait();
    made->markCompleted(c10::IValue(results_));
  }
  {
    const std::lock_guard lock(mutex_);
    if (future_) return future_;  // another thread's
    future_ = made;
  }
  if (!devices.empty()) return made;
  whenEnded(work_, [work = work_, made, results = results_] {
    if (const std::exception_ptr error = work->exception()) {
      made->setError(error);
    } else {
      made->markCompleted(c10::IValue(results));
    }
  });
  return made;
}

c10::intrusive_ptr<Future> WorkWrapper::getFutureResult() {
  {
    const std::lock_guard lock(mutex_);
    if (futureResult_) return futureResult_;
    futureResult_ = c10::make_intrusive<Future>(c10::IntType::get());
  }
  whenEnded(work_, [work = work_, future = futureResult_] {
    future->markCompleted(c10::IValue(static_cast<int64_t>(resultOf(*work))));
  });
  return futureResult_;
}

}  // namespace torch::comms
