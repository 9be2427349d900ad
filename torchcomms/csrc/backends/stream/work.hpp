#pragma once

#include <ATen/core/Tensor.h>

#include <comms/torchcomms/TorchWork.hpp>
#include <memory>

#include "ctran/stream/stream_operation.h"
#include "torchcomms/csrc/on_stream.hpp"

namespace torch::comms::stream {

/// The work of an operation that the engine tracks on a stream.
class StreamWork final : public TorchWork, public OnStream {
 public:
  StreamWork(std::shared_ptr<ctran::StreamOperation> operation, at::Device device)
      : operation_(std::move(operation)), device_(device) {}
  ~StreamWork() override { operation_->abandon(); }

  const std::shared_ptr<ctran::StreamOperation>& operation() const override { return operation_; }

  WorkStatus status() const override;
  std::exception_ptr exception() const override { return operation_->error(); }
  void setCallback(std::function<void()> callback) override {
    operation_->onDone(std::move(callback));
  }

 protected:
  /// Without a limit makes the current stream wait; with one blocks the thread.
  bool doWait(std::optional<std::chrono::milliseconds> limit) override;
  bool doWaitBlocking(std::optional<std::chrono::milliseconds> limit) override;

 private:
  const std::shared_ptr<ctran::StreamOperation> operation_;
  const at::Device device_;
};

/// Returns the work of an operation. A captured operation has none; for it, returns a completed
/// work.
c10::intrusive_ptr<TorchWork> workOf(std::shared_ptr<ctran::StreamOperation> operation,
                                     at::Device device);

}  // namespace torch::comms::stream
