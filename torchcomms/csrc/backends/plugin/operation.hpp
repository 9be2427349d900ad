#pragma once

#include <ATen/core/Tensor.h>
#include <comms/torchcomms/plugin.h>

#include <chrono>
#include <comms/torchcomms/TorchCommTypes.hpp>
#include <comms/torchcomms/TorchWork.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace torch::comms {

/// A c10d store as a plug-in sees it.
class PluginStore {
 public:
  explicit PluginStore(c10::intrusive_ptr<c10d::Store> store);
  const torchcomms_store* get() const { return &table_; }

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  torchcomms_store table_{};
};

/// One operation of a plug-in with the tensors it uses. It is released when it has ended and is no
/// longer held. All methods may be called from any thread.
class PluginOperation {
 public:
  PluginOperation(const torchcomms_plugin& plugin, torchcomms_operation* operation, OpName name,
                  std::string comm, int64_t deadlineNanos, std::vector<at::Tensor> held);
  ~PluginOperation();
  PluginOperation(const PluginOperation&) = delete;
  PluginOperation& operator=(const PluginOperation&) = delete;

  WorkStatus status();
  std::exception_ptr error();
  /// Waits for the end, at most for `limit`. Returns whether it has come. When its own deadline
  /// passes, the operation is cancelled.
  bool wait(std::optional<std::chrono::milliseconds> limit, bool interruptible);

 private:
  /// Takes what the plug-in says of the operation. Returns how it stands.
  WorkStatus take(int result);

  const torchcomms_plugin plugin_;
  torchcomms_operation* const operation_;
  const OpName name_;
  const std::string comm_;
  const int64_t deadline_;
  std::mutex mutex_;
  WorkStatus status_ = WorkStatus::INPROGRESS;  ///< guarded by mutex_
  std::exception_ptr error_;                    ///< guarded by mutex_
  std::vector<at::Tensor> held_;                ///< guarded by mutex_
};

class PluginWork final : public TorchWork {
 public:
  explicit PluginWork(std::shared_ptr<PluginOperation> operation)
      : operation_(std::move(operation)) {}

  WorkStatus status() const override { return operation_->status(); }
  std::exception_ptr exception() const override { return operation_->error(); }
  /// If it has not ended yet, a thread of its own waits for it.
  void setCallback(std::function<void()> callback) override;

 protected:
  bool doWait(std::optional<std::chrono::milliseconds> limit) override;

 private:
  const std::shared_ptr<PluginOperation> operation_;
};

/// Returns nanoseconds of CLOCK_MONOTONIC.
int64_t monotonicNanos();

}  // namespace torch::comms
