#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <comms/torchcomms/TorchCommBackend.hpp>
#include <optional>
#include <string>

#include "torchcomms/csrc/hooks/operation_view.hpp"

namespace torch::comms {

/// What profilers see of a call, from its construction to its destruction: of torch.profiler an
/// event "ctran:all_reduce" with the bytes and the algorithm, and in it the "record_param_comms" of
/// torch.distributed, which tools that read its traces look for; of NVTX a range, where
/// TORCHCOMMS_NVTX asks for it.
class ProfiledCall {
 public:
  /// Whether somebody looks. This is all that a call costs where nobody does.
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
  // In the order of their beginnings; they end the other way round.
  std::optional<at::RecordFunction> event_;
  std::optional<c10::DebugInfoGuard> parameters_;
  std::optional<at::RecordFunction> standard_;
};

}  // namespace torch::comms
