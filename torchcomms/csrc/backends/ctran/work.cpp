#include "torchcomms/csrc/backends/ctran/work.hpp"

#include "ctran/base/counted.h"
#include "ctran/base/error.h"

namespace torch::comms {

namespace {

bool isTimeout(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ctran::Error& e) {
    return e.kind() == ctran::ErrorKind::Timeout;
  } catch (...) {
    return false;
  }
}

}  // namespace

CtranWork::CtranWork(OpName op, std::shared_ptr<ctran::Work> work,
                     std::shared_ptr<ErrorMonitor> monitor, std::shared_ptr<const int> source)
    : op_(op), work_(std::move(work)), monitor_(std::move(monitor)), source_(std::move(source)) {}

c10::intrusive_ptr<CtranWork> CtranWork::make(OpName op, std::shared_ptr<ctran::Work> work,
                                              std::shared_ptr<ErrorMonitor> monitor,
                                              std::shared_ptr<const int> source) {
  auto made = c10::intrusive_ptr<CtranWork>::unsafe_steal_from_new(
      new CtranWork(op, std::move(work), std::move(monitor), std::move(source)));
  if (made->work_->state() == ctran::WorkState::Completed) return made;
  // The engine's work outlives the call, so a plain pointer to it does; an owning one would be a
  // cycle.
  made->work_->onDone([op, self = c10::weak_intrusive_ptr<CtranWork>(made),
                       engineWork = made->work_.get(), monitor = made->monitor_] {
    const std::exception_ptr error = engineWork->error();
    if (!error) return;
    if (const auto work = self.lock()) {
      work->ended();
    } else {
      monitor->failed(std::string(toString(op)), error, /*reachable=*/false);
    }
  });
  return made;
}

CtranWork::~CtranWork() {
  if (work_->state() == ctran::WorkState::Failed) {
    monitor_->dropped(std::string(toString(op_)), work_->error());
  }
}

void CtranWork::ended() {
  // A thread counts as waiting until it has looked at the final state (see wait), so that either it
  // or we deal with the error.
  if (waiting_ > 0) return monitor_->broken();
  monitor_->failed(std::string(toString(op_)), work_->error(), /*reachable=*/true);
}

WorkStatus CtranWork::status() const {
  switch (work_->state()) {
    case ctran::WorkState::Queued:
      return WorkStatus::NOT_STARTED;
    case ctran::WorkState::Running:
      return WorkStatus::INPROGRESS;
    case ctran::WorkState::Completed:
      return WorkStatus::COMPLETED;
    case ctran::WorkState::Failed:
      return isTimeout(work_->error()) ? WorkStatus::TIMEDOUT : WorkStatus::ERROR;
  }
  return WorkStatus::ERROR;
}

void CtranWork::throwIfFailed() const {
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
}

bool CtranWork::doWait(std::optional<std::chrono::milliseconds> limit) {
  EngineWaitHooks hooks;
  bool ended = true;
  {
    const ctran::Counted waiting(waiting_);
    try {
      if (limit) {
        ended = work_->waitFor(*limit, &hooks);
      } else {
        work_->wait(&hooks);
      }
    } catch (...) {
      // Its own error, or an interrupt that ends the wait and not the operation.
      throwIfFailed();
      throw;
    }
  }
  throwIfFailed();
  return ended;
}

std::exception_ptr CtranWork::exception() const {
  if (work_->state() != ctran::WorkState::Failed) return nullptr;
  monitor_->seen();
  return work_->error();
}

}  // namespace torch::comms
