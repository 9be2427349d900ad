#pragma once

#include <chrono>
#include <comms/torchcomms/TorchCommHooks.hpp>
#include <optional>
#include <vector>

namespace torch::comms {

/// The arguments of any operation in one form, for hooks that treat them alike.
struct OperationView {
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;  ///< those that it writes on some rank
  std::optional<int> peer;
  std::optional<int> root;
  std::optional<ReduceOp> op;
  bool async_op = false;
  std::chrono::milliseconds timeout{0};
};

OperationView viewOf(const PreHookArgs& args);

/// "[3, 4], [2]": the shapes of tensors.
std::string shapesOf(const std::vector<at::Tensor>& tensors);

}  // namespace torch::comms
