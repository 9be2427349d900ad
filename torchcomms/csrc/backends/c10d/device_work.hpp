#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <comms/torchcomms/TorchWork.hpp>
#include <memory>

namespace torch::comms {

/// A call of a c10d backend whose operations are work on the streams of a device. It has ended when
/// the device has done what was on the stream at the call. Keeps what the call uses.
class DeviceOperation {
 public:
  /// The device has to be current.
  DeviceOperation(const c10::Stream& stream, std::shared_ptr<void> held);

  /// Never blocks. Also returns true if the device is lost; torch reports that to the code that
  /// uses the device.
  bool hasEnded() const;
  /// Orders the current stream behind the operation.
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
