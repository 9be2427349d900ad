#pragma once

#include <comms/torchcomms/TorchCommBackend.hpp>
#include <memory>

#include "ctran/engine/communicator.h"
#include "torchcomms/csrc/error_monitor.hpp"

namespace torch::comms {

/// The project's own engine: describes each operation as a ctran::Collective.
class CtranBackend final : public TorchCommBackend {
 public:
  CtranBackend() = default;
  ~CtranBackend() override;
  CtranBackend(const CtranBackend&) = delete;
  CtranBackend& operator=(const CtranBackend&) = delete;

  void init(at::Device device, std::string_view name, const CommOptions& options) override;
  void finalize() override;

  int getRank() const override { return comm_->rank(); }
  int getSize() const override { return comm_->size(); }
  std::string_view getCommName() const override { return comm_->name(); }
  std::string_view getBackendName() const override { return "ctran"; }
  std::string_view getBackendVersion() const override { return TORCHCOMMS_VERSION; }
  const CommOptions& getOptions() const override { return options_; }
  const at::Device& getDevice() const override { return device_; }

  WorkPtr send(const at::Tensor& tensor, int dst, bool async_op,
               const SendOptions& options) override;
  WorkPtr recv(at::Tensor& tensor, int src, bool async_op, const RecvOptions& options) override;
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
  WorkPtr gather_single(at::Tensor& output, const at::Tensor& input, int root, bool async_op,
                        const GatherSingleOptions& options) override;

  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;

  std::shared_ptr<TorchCommWindow> new_window() override;

  bool isAbortSupported() const override { return true; }
  void abort() override;
  bool isAborted() const override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setFailureListener(std::function<void(bool)> listener) override {
    monitor_->listen(std::move(listener));
  }

 private:
  void adopt(std::shared_ptr<ctran::Communicator> comm, at::Device device,
             const CommOptions& options);

  /// Runs or posts the operation. What is posted holds `tensors`.
  template <typename... Held>
  WorkPtr execute(OpName op, ctran::Collective&& collective, bool async_op,
                  const OpOptions& options, const Held&... tensors);

  /// Calls the engine; an error that breaks the communicator and reaches the program is seen.
  template <typename Call>
  auto visibly(Call call);

  std::shared_ptr<ctran::Communicator> comm_;
  std::shared_ptr<ErrorMonitor> monitor_;
  CommOptions options_;
  at::Device device_{at::kCPU};
};

}  // namespace torch::comms
