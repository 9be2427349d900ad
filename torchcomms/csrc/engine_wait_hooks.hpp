#pragma once

#include <comms/torchcomms/TorchWork.hpp>

#include "ctran/base/work.h"
#include "torchcomms/csrc/error_monitor.hpp"

namespace torch::comms {

/// The hooks with which the engine waits under HostWait.
class EngineWaitHooks final : public ctran::WaitHooks {
 public:
  EngineWaitHooks() = default;
  /// For a call that fails the communicator when it is interrupted. Operations for which no thread
  /// waits then fail with it, so the monitor is told before that the program has seen the error.
  explicit EngineWaitHooks(ErrorMonitor& monitor) : monitor_(&monitor) {}

  void beforeBlocking() override {
    if (hostRuntime().release) released_ = hostRuntime().release();
  }
  void afterBlocking() override {
    if (hostRuntime().acquire) hostRuntime().acquire(released_);
  }
  void interrupted() override {
    try {
      HostWait::checkInterrupts();
    } catch (...) {
      if (monitor_ != nullptr) monitor_->seen();
      throw;
    }
  }

 private:
  ErrorMonitor* const monitor_ = nullptr;
  void* released_ = nullptr;
};

}  // namespace torch::comms
