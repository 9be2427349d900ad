#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <comms/torchcomms/TorchWork.hpp>
#include <memory>
#include <mutex>

#include "torchcomms/csrc/c10d/staging.hpp"

namespace torch::comms {

/// An operation on staged outputs; lives until they have been copied back, or it has failed.
class OutputCopy {
 public:
  OutputCopy(c10::intrusive_ptr<TorchWork> work, StagedOutputs outputs)
      : work(std::move(work)), outputs(std::move(outputs)) {}

  /// As TorchWork::wait, then copies back.
  bool wait(std::optional<std::chrono::milliseconds> limit = std::nullopt);
  /// Copies back if the operation has succeeded and nobody else has. Never throws.
  void copyBack();
  bool hasCopied() const { return hasCopied_.load(std::memory_order_acquire); }
  /// Why copying back has failed, else null. After hasCopied.
  const std::exception_ptr& error() const { return error_; }

  const c10::intrusive_ptr<TorchWork> work;
  const StagedOutputs outputs;

 private:
  std::mutex mutex_;  ///< held while it copies
  std::exception_ptr error_;
  std::atomic<bool> hasCopied_{false};
};

/// An operation of the CPU on staged outputs. It has ended when they have been copied back, which
/// the first thread that waits does, else that of postCallback.
class CopiedWork final : public TorchWork {
 public:
  /// After startCallbacks.
  CopiedWork(c10::intrusive_ptr<TorchWork> work, StagedOutputs outputs);

  std::weak_ptr<OutputCopy> copy() const { return copy_; }

  WorkStatus status() const override;
  std::exception_ptr exception() const override;
  void setCallback(Hook callback) override;

 protected:
  bool doWait(std::optional<std::chrono::milliseconds> limit) override {
    return copy_->wait(limit);
  }
  void setStartCallback(Hook callback) override;

 private:
  const std::shared_ptr<OutputCopy> copy_;  ///< shared with what is posted
};

}  // namespace torch::comms
