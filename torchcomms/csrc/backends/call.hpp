#pragma once

#include <ATen/core/Tensor.h>

#include <comms/torchcomms/TorchCommBackend.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace torch::comms {

/// As the peer of a receive: the message may come from any rank.
inline constexpr int kAnySource = -1;

/// One operation of a communicator, of any kind, as a built-in backend gets it.
///
/// It refers to what the caller holds. A backend that uses the tensors after it has returned has to
/// keep them, see `tensors`.
struct Call {
  OpName op;
  bool async = false;
  const OpOptions& options;  ///< has the operation's own type
  /// The inputs of this rank: one tensor, or one per rank. Empty if it has none, and for a
  /// broadcast.
  std::span<const at::Tensor> inputs = {};
  /// What is written on this rank: one tensor, or one per rank. The tensor of an in-place operation
  /// is an input and an output; the tensor of a broadcast is an output on the root, too.
  std::span<const at::Tensor> outputs = {};
  int root = 0;  ///< the root; for send and recv the peer
  const ReduceOp* reduceOp = nullptr;
  int tag = 0;
  /// For all_to_all_v_single: how many rows of dimension 0 go to, and come from, each rank.
  std::span<const uint64_t> inputRows = {};
  std::span<const uint64_t> outputRows = {};
  const at::Tensor* seed = nullptr;                 ///< for reduce_scatter_quantized
  const std::shared_ptr<void>* prepared = nullptr;  ///< TorchCommBackend::prepare; or null
  std::span<const P2POp> batch = {};                ///< for batch_op_issue
  const RowExchangeCall* rows = nullptr;            ///< for the dynamic forms of all-to-all

  /// Returns the inputs and outputs; the result holds their memory.
  std::vector<at::Tensor> tensors() const {
    std::vector<at::Tensor> all(inputs.begin(), inputs.end());
    all.insert(all.end(), outputs.begin(), outputs.end());
    return all;
  }
  /// Returns the messages of send, recv and batch_op_issue.
  std::vector<P2POp> messages() const {
    if (op == OpName::batch_op_issue) return {batch.begin(), batch.end()};
    if (op == OpName::send) return {{P2POp::Type::SEND, inputs[0], root, tag}};
    return {{P2POp::Type::RECV, outputs[0], root, tag}};
  }
};

/// Splits a tensor into as many parts of equal size as there are ranks.
inline std::vector<at::Tensor> equalParts(const at::Tensor& tensor, int ranks) {
  return tensor.view({ranks, tensor.numel() / ranks}).unbind();
}

}  // namespace torch::comms
