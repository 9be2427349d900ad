#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <comms/torchcomms/TorchCommBackend.hpp>
#include <optional>
#include <string>

#include "torchcomms/csrc/hooks/operation_view.hpp"

namespace torch::comms {

/// Shows a call to profilers, from its construction to its destruction. torch.profiler gets an
/// event "ctran:all_reduce" with the bytes and the algorithm, and in it the "record_param_comms" of
/// torch.distributed, for which tools that read its traces look. NVTX gets a range if
/// TORCHCOMMS_NVTX asks for it.
class ProfiledCall {
 public:
  /// Returns whether a profiler is active. If none is, a call pays for this check only.
  static bool isSeen() { return at::hasCallbacks() || isRange(); }

  ProfiledCall(const TorchCommBackend& backend, OpName op, const OperationView& view);
  ~ProfiledCall();
  ProfiledCall(const ProfiledCall&) = delete;
  ProfiledCall& operator=(const ProfiledCall&) = delete;

 private:
  void record(const TorchCommBackend& backend, OpName op, const OperationView& view, int64_t bytes,
              const std::string& algorithm);

  static bool isRange();

  std::string name_;
  // In the order in which they begin; they end in the opposite order.
  std::optional<at::RecordFunction> event_;
  std::optional<c10::DebugInfoGuard> parameters_;
  std::optional<at::RecordFunction> standard_;
};

}  // namespace torch::comms
