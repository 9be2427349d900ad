#include "torchcomms/csrc/c10d/copied_work.hpp"

#include "torchcomms/csrc/c10d/callback_thread.hpp"

namespace torch::comms {

bool OutputCopy::wait(std::optional<std::chrono::milliseconds> limit) {
  if (!limit) {
    work->wait();
  } else if (!work->wait(*limit)) {
    return false;
  }
  copyBack();
  if (error_) std::rethrow_exception(error_);
  return true;
}

void OutputCopy::copyBack() {
  if (work->status() != WorkStatus::COMPLETED) return;
  const std::lock_guard lock(mutex_);
  if (hasCopied()) return;
  try {
    outputs.copyBack();
  } catch (...) {
    error_ = std::current_exception();
  }
  hasCopied_.store(true, std::memory_order_release);
}

CopiedWork::CopiedWork(c10::intrusive_ptr<TorchWork> work, StagedOutputs outputs)
    : copy_(std::make_shared<OutputCopy>(std::move(work), std::move(outputs))) {
  setCallback([] {});
}

WorkStatus CopiedWork::status() const {
  const WorkStatus status = copy_->work->status();
  if (status != WorkStatus::COMPLETED) return status;
  if (!copy_->hasCopied()) return WorkStatus::INPROGRESS;
  return copy_->error() ? WorkStatus::ERROR : WorkStatus::COMPLETED;
}

std::exception_ptr CopiedWork::exception() const {
  if (const std::exception_ptr error = copy_->work->exception()) return error;
  return copy_->hasCopied() ? copy_->error() : nullptr;
}

void CopiedWork::setStartCallback(Hook callback) {
  copy_->work->registerWorkStartHook(std::move(callback));
}

void CopiedWork::setCallback(Hook callback) {
  // Each callback copies first, as one that a task waits for overtakes those before it.
  copy_->work->setCallback(
      [copy = copy_, callback = std::move(callback), isAwaited = expectCallback()]() mutable {
        postCallback(
            [copy = std::move(copy), callback = std::move(callback)] {
              copy->copyBack();
              callback();
            },
            isAwaited);
      });
}

}  // namespace torch::comms
