#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <comms/torchcomms/TorchWork.hpp>
#include <memory>

namespace torch::comms {

/// A call of a c10d backend whose works are work on the streams of a device: it has ended when the
/// device has done what had been put on a stream by then. Keeps what the call uses.
class DeviceOperation {
 public:
  /// The device is current.
  DeviceOperation(const c10::Stream& stream, std::shared_ptr<void> held);

  /// Never blocks. True, too, if the device is lost: who uses it is told by torch.
  bool hasEnded() const;
  /// Orders the current stream behind it.
  void follow();

 private:
  const c10::Device device_;
  const std::shared_ptr<void> held_;
  c10::Event end_;
};

class DeviceWork final : public TorchWork {
 public:
  explicit DeviceWork(std::shared_ptr<DeviceOperation> operation)
      : operation_(std::move(operation)) {}

  WorkStatus status() const override {
    return operation_->hasEnded() ? WorkStatus::COMPLETED : WorkStatus::INPROGRESS;
  }
  std::exception_ptr exception() const override { return nullptr; }
  void setCallback(Hook callback) override;

 protected:
  bool doWait(std::optional<std::chrono::milliseconds> limit) override;
  bool doWaitBlocking(std::optional<std::chrono::milliseconds> limit) override;

 private:
  const std::shared_ptr<DeviceOperation> operation_;
};

}  // namespace torch::comms
