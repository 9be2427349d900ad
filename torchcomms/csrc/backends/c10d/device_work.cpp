#include "torchcomms/csrc/backends/c10d/device_work.hpp"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "torchcomms/csrc/backends/stream/waiting.hpp"

namespace torch::comms {

DeviceOperation::DeviceOperation(const c10::Stream& stream, std::shared_ptr<void> held)
    : device_(stream.device()), held_(std::move(held)), end_(stream.device_type()) {
  end_.record(stream);
}

bool DeviceOperation::hasEnded() const {
  try {
    return end_.query();
  } catch (const c10::Error&) {
    return true;
  }
}

void DeviceOperation::follow() {
  end_.block(c10::impl::getDeviceGuardImpl(device_.type())->getStream(device_));
}

void DeviceWork::setCallback(Hook callback) {
  stream::whenHolds([operation = operation_] { return operation->hasEnded(); },
                    std::move(callback));
}

bool DeviceWork::doWait(std::optional<std::chrono::milliseconds>) {
  operation_->follow();
  return true;
}

bool DeviceWork::doWaitBlocking(std::optional<std::chrono::milliseconds> limit) {
  operation_->follow();
  return stream::waitUntil([this] { return operation_->hasEnded(); }, limit);
}

}  // namespace torch::comms
