#pragma once

#include <comms/torchcomms/TorchCommBackend.hpp>

#include "torchcomms/csrc/backends/call.hpp"

namespace torch::comms {

/// A backend that gets every operation as a Call.
class BuiltinBackend : public TorchCommBackend {
 public:
  /// Carries out an operation. Calls `unsupported`, which throws, for an operation that it does not
  /// have.
  virtual WorkPtr issue(const Call& call) = 0;

  int getRank() const override { return *options_.rank; }
  int getSize() const override { return *options_.size; }
  std::string_view getCommName() const override { return options_.name; }
  const CommOptions& getOptions() const override { return options_; }
  const at::Device& getDevice() const override { return device_; }

  WorkPtr send(const at::Tensor& tensor, int dst, bool async_op, const SendOptions& options) final;
  WorkPtr recv(at::Tensor& tensor, int src, bool async_op, const RecvOptions& options) final;
  WorkPtr recvAnySource(at::Tensor& tensor, bool async_op, const RecvOptions& options) final;
  WorkPtr batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                         const BatchP2POptions& options) final;
  WorkPtr broadcast(at::Tensor& tensor, int root, bool async_op,
                    const BroadcastOptions& options) final;
  WorkPtr all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                     const AllReduceOptions& options) final;
  WorkPtr reduce(at::Tensor& tensor, int root, const ReduceOp& op, bool async_op,
                 const ReduceOptions& options) final;
  WorkPtr all_gather(const Tensors& tensor_list, const at::Tensor& tensor, bool async_op,
                     const AllGatherOptions& options) final;
  WorkPtr all_gather_v(const Tensors& tensor_list, const at::Tensor& tensor, bool async_op,
                       const AllGatherOptions& options) final;
  WorkPtr all_gather_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                            const AllGatherSingleOptions& options) final;
  WorkPtr reduce_scatter(at::Tensor& output, const Tensors& input_list, const ReduceOp& op,
                         bool async_op, const ReduceScatterOptions& options) final;
  WorkPtr reduce_scatter_v(at::Tensor& output, const Tensors& input_list, const ReduceOp& op,
                           bool async_op, const ReduceScatterOptions& options) final;
  WorkPtr reduce_scatter_single(at::Tensor& output, const at::Tensor& input, const ReduceOp& op,
                                bool async_op, const ReduceScatterSingleOptions& options) final;
  WorkPtr reduce_scatter_quantized(at::Tensor& output, const at::Tensor& input, const ReduceOp& op,
                                   const at::Tensor& seed, bool async_op,
                                   const ReduceScatterSingleOptions& options) final;
  WorkPtr all_to_all_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                            const AllToAllSingleOptions& options) final;
  WorkPtr all_to_all_v_single(at::Tensor& output, const at::Tensor& input,
                              const std::vector<uint64_t>& output_split_sizes,
                              const std::vector<uint64_t>& input_split_sizes, bool async_op,
                              const AllToAllvSingleOptions& options) final;
  WorkPtr all_to_all(const Tensors& output_tensor_list, const Tensors& input_tensor_list,
                     bool async_op, const AllToAllOptions& options) final;
  WorkPtr exchange_rows(const RowExchangeCall& rows, bool async_op,
                        const AllToAllvSingleOptions& options) final;
  WorkPtr barrier(bool async_op, const BarrierOptions& options) final;
  WorkPtr scatter(at::Tensor& output_tensor, const Tensors& input_tensor_list, int root,
                  bool async_op, const ScatterOptions& options) final;
  WorkPtr gather(const Tensors& output_tensor_list, const at::Tensor& input_tensor, int root,
                 bool async_op, const GatherOptions& options) final;
  WorkPtr gather_single(at::Tensor& output, const at::Tensor& input, int root, bool async_op,
                        const GatherSingleOptions& options) final;

 protected:
  /// Returns the timeout of the call, else the communicator's.
  std::chrono::milliseconds timeoutOf(const OpOptions& options) const {
    return options.timeout == kNoTimeout ? options_.timeout : options.timeout;
  }
  /// Throws for an operation that the backend does not have.
  [[noreturn]] void unsupported(const Call& call) const;
  using TorchCommBackend::unsupported;

  CommOptions options_;  ///< with name, rank and size
  at::Device device_{at::kCPU};
};

}  // namespace torch::comms
