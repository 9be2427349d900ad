#pragma once

#include <comms/torchcomms/TorchCommBackend.hpp>
#include <memory>

namespace torch::comms {

/// A backend for tensors of the CPU that takes those of devices too: by way of host memory.
///
/// Inputs are copied when an operation is issued, for which the CPU waits; results when it has
/// ended, see staged/work.hpp. On the CPU every call goes straight through. Calls in a capture
/// throw.
class StagedBackend final : public TorchCommBackend {
 public:
  explicit StagedBackend(std::shared_ptr<TorchCommBackend> inner) : inner_(std::move(inner)) {}

  void init(at::Device device, std::string_view name, const CommOptions& options) override;
  void finalize() override { inner_->finalize(); }

  int getRank() const override { return inner_->getRank(); }
  int getSize() const override { return inner_->getSize(); }
  std::string_view getCommName() const override { return inner_->getCommName(); }
  std::string_view getBackendName() const override { return inner_->getBackendName(); }
  std::string_view getBackendVersion() const override { return inner_->getBackendVersion(); }
  const CommOptions& getOptions() const override { return inner_->getOptions(); }
  const at::Device& getDevice() const override { return device_; }

  WorkPtr send(const at::Tensor& tensor, int dst, bool async_op,
               const SendOptions& options) override;
  WorkPtr recv(at::Tensor& tensor, int src, bool async_op, const RecvOptions& options) override;
  WorkPtr recvAnySource(at::Tensor& tensor, bool async_op, const RecvOptions& options) override;
  WorkPtr batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                         const BatchP2POptions& options) override;
  WorkPtr broadcast(at::Tensor& tensor, int root, bool async_op,
                    const BroadcastOptions& options) override;
  WorkPtr all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                     const AllReduceOptions& options) override;
  WorkPtr reduce(at::Tensor& tensor, int root, const ReduceOp& op, bool async_op,
                 const ReduceOptions& options) override;
  WorkPtr all_gather(const Tensors& tensor_list, const at::Tensor& tensor, bool async_op,
                     const AllGatherOptions& options) override;
  WorkPtr all_gather_v(const Tensors& tensor_list, const at::Tensor& tensor, bool async_op,
                       const AllGatherOptions& options) override;
  WorkPtr all_gather_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                            const AllGatherSingleOptions& options) override;
  WorkPtr reduce_scatter(at::Tensor& output, const Tensors& input_list, const ReduceOp& op,
                         bool async_op, const ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_v(at::Tensor& output, const Tensors& input_list, const ReduceOp& op,
                           bool async_op, const ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_single(at::Tensor& output, const at::Tensor& input, const ReduceOp& op,
                                bool async_op, const ReduceScatterSingleOptions& options) override;
  WorkPtr all_to_all_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                            const AllToAllSingleOptions& options) override;
  WorkPtr all_to_all_v_single(at::Tensor& output, const at::Tensor& input,
                              const std::vector<uint64_t>& output_split_sizes,
                              const std::vector<uint64_t>& input_split_sizes, bool async_op,
                              const AllToAllvSingleOptions& options) override;
  WorkPtr all_to_all(const Tensors& output_tensor_list, const Tensors& input_tensor_list,
                     bool async_op, const AllToAllOptions& options) override;
  WorkPtr barrier(bool async_op, const BarrierOptions& options) override;
  WorkPtr scatter(at::Tensor& output_tensor, const Tensors& input_tensor_list, int root,
                  bool async_op, const ScatterOptions& options) override;
  WorkPtr gather(const Tensors& output_tensor_list, const at::Tensor& input_tensor, int root,
                 bool async_op, const GatherOptions& options) override;

  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;

  bool isAbortSupported() const override { return inner_->isAbortSupported(); }
  void abort() override { inner_->abort(); }
  bool isAborted() const override { return inner_->isAborted(); }
  void setTimeout(std::chrono::milliseconds timeout) override { inner_->setTimeout(timeout); }
  void setHints(const Hints& hints) override { inner_->setHints(hints); }
  void setFailureListener(std::function<void(bool)> listener) override {
    inner_->setFailureListener(std::move(listener));
  }

 private:
  /// Whether tensors are the CPU's. Throws ctran::Error (Unsupported) in a capture.
  bool direct(OpName op) const;
  /// `call(hostOutputs)` asks the inner backend. `read`: the outputs are inputs too.
  template <typename Call>
  WorkPtr staged(const Tensors& outputs, bool read, bool async_op, const Call& call);

  const std::shared_ptr<TorchCommBackend> inner_;
  at::Device device_{at::kCPU};
};

}  // namespace torch::comms
