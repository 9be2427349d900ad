#include "torchcomms/csrc/backends/stream/work.hpp"

#include "torchcomms/csrc/current_stream.hpp"
#include "torchcomms/csrc/engine_wait_hooks.hpp"

namespace torch::comms::stream {

WorkStatus StreamWork::status() const {
  switch (operation_->state()) {
    case ctran::WorkState::Completed:
      return WorkStatus::COMPLETED;
    case ctran::WorkState::Failed:
      return operation_->failure() == ctran::ErrorKind::Timeout ? WorkStatus::TIMEDOUT
                                                                : WorkStatus::ERROR;
    default:
      return WorkStatus::INPROGRESS;
  }
}

bool StreamWork::doWait(std::optional<std::chrono::milliseconds> limit) {
  if (limit) return doWaitBlocking(limit);
  operation_->makeWait(currentStream(device_));
  return true;
}

bool StreamWork::doWaitBlocking(std::optional<std::chrono::milliseconds> limit) {
  EngineWaitHooks hooks;
  if (!operation_->block(limit, &hooks)) return false;
  operation_->release();
  return true;
}

c10::intrusive_ptr<TorchWork> workOf(std::shared_ptr<ctran::StreamOperation> operation,
                                     at::Device device) {
  if (!operation) return TorchWorkCompleted::shared();
  return c10::make_intrusive<StreamWork>(std::move(operation), device);
}

}  // namespace torch::comms::stream
