#pragma once

#include <comms/torchcomms/TorchCommBackend.hpp>
#include <functional>
#include <memory>

#include "ctran/base/replaceable.h"

namespace torch::comms {

/// A backend for tensors of the CPU that takes those of devices too: by way of host memory.
///
/// Inputs are copied when an operation is issued, for which the CPU waits; results when it has
/// ended, see staged/work.hpp. On the CPU every call goes straight through. Calls in a capture
/// throw.
///
/// With enable_reconfigure it makes a new one whenever the members change. They find each other as
/// those of backend ctran do, which says who is late or lost.
class StagedBackend final : public TorchCommBackend {
 public:
  /// Makes a backend that has not been initialised.
  using Make = std::function<std::shared_ptr<TorchCommBackend>()>;

  explicit StagedBackend(Make make) : StagedBackend(make, make()) {}
  StagedBackend(Make make, std::shared_ptr<TorchCommBackend> inner) : make_(std::move(make)) {
    static_cast<void>(inner_.replace(std::move(inner)));
  }

  void init(at::Device device, std::string_view name, const CommOptions& options) override;
  void finalize() override { inner().finalize(); }

  int getRank() const override { return inner().getRank(); }
  int getSize() const override { return inner().getSize(); }
  std::string_view getCommName() const override { return inner().getCommName(); }
  std::string_view getBackendName() const override { return inner().getBackendName(); }
  std::string_view getBackendVersion() const override { return inner().getBackendVersion(); }
  const CommOptions& getOptions() const override { return inner().getOptions(); }
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

  bool isAbortSupported() const override { return inner().isAbortSupported(); }
  void abort() override { inner().abort(); }
  bool isAborted() const override {
    return inner_.look([](const auto& inner) { return inner->isAborted(); });
  }
  void setTimeout(std::chrono::milliseconds timeout) override { inner().setTimeout(timeout); }
  void setHints(const Hints& hints) override { inner().setHints(hints); }
  void setFailureListener(std::function<void(bool)> listener) override {
    inner().setFailureListener(std::move(listener));
  }

  std::string getInitHandle() const override;
  void reconfigure(const ReconfigureOptions& options) override;

 private:
  TorchCommBackend& inner() const { return **inner_; }
  /// Of which the processes that may become members are parts.
  TorchCommBackend& meeting() const;

  /// Whether tensors are the CPU's. Throws ctran::Error before there are members, and (Unsupported)
  /// in a capture.
  bool direct(OpName op) const;
  /// `call(hostOutputs)` asks the inner backend. `read`: the outputs are inputs too.
  template <typename Call>
  WorkPtr staged(const Tensors& outputs, bool read, bool async_op, const Call& call);

  const Make make_;
  ctran::Replaceable<std::shared_ptr<TorchCommBackend>> inner_;
  mutable std::shared_ptr<TorchCommBackend> meeting_;
  at::Device device_{at::kCPU};
  bool formed_ = false;  ///< has members
};

}  // namespace torch::comms
