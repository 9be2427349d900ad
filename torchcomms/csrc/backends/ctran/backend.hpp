#pragma once

#include <atomic>
#include <comms/torchcomms/TorchCommBackend.hpp>
#include <map>
#include <memory>

#include "ctran/base/replaceable.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/gpu_communicator.h"
#include "ctran/engine/init_point.h"
#include "torchcomms/csrc/error_monitor.hpp"

namespace torch::comms {

/// The project's own engine: describes each operation as a ctran::Collective.
///
/// On tensors of the CPU the engine runs or posts it. On GPUs it becomes work on a stream: with
/// `async_op` false on the one that is current for the caller, with true on the communicator's own,
/// behind what the current one holds. While a stream captures, every operation runs on it and
/// belongs to its graph. No call waits for the device.
class CtranBackend final : public TorchCommBackend {
 public:
  CtranBackend() = default;
  ~CtranBackend() override;
  CtranBackend(const CtranBackend&) = delete;
  CtranBackend& operator=(const CtranBackend&) = delete;

  void init(at::Device device, std::string_view name, const CommOptions& options) override;
  void finalize() override;

  int getRank() const override { return *options_.rank; }
  int getSize() const override { return *options_.size; }
  std::string_view getCommName() const override { return options_.name; }
  std::string_view getBackendName() const override { return "ctran"; }
  std::string_view getBackendVersion() const override { return TORCHCOMMS_VERSION; }
  const CommOptions& getOptions() const override { return options_; }
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
  WorkPtr reduce_scatter_quantized(at::Tensor& output, const at::Tensor& input, const ReduceOp& op,
                                   const at::Tensor& seed, bool async_op,
                                   const ReduceScatterSingleOptions& options) override;
  WorkPtr all_to_all_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                            const AllToAllSingleOptions& options) override;
  WorkPtr all_to_all_v_single(at::Tensor& output, const at::Tensor& input,
                              const std::vector<uint64_t>& output_split_sizes,
                              const std::vector<uint64_t>& input_split_sizes, bool async_op,
                              const AllToAllvSingleOptions& options) override;
  WorkPtr all_to_all(const Tensors& output_tensor_list, const Tensors& input_tensor_list,
                     bool async_op, const AllToAllOptions& options) override;
  WorkPtr exchange_rows(const RowExchangeCall& call, bool async_op,
                        const AllToAllvSingleOptions& options) override;
  WorkPtr barrier(bool async_op, const BarrierOptions& options) override;
  WorkPtr scatter(at::Tensor& output_tensor, const Tensors& input_tensor_list, int root,
                  bool async_op, const ScatterOptions& options) override;
  WorkPtr gather(const Tensors& output_tensor_list, const at::Tensor& input_tensor, int root,
                 bool async_op, const GatherOptions& options) override;
  WorkPtr gather_single(at::Tensor& output, const at::Tensor& input, int root, bool async_op,
                        const GatherSingleOptions& options) override;

  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;

  void tensorRegister(const at::Tensor& tensor) override;
  void tensorDeregister(const at::Tensor& tensor) override;
  std::shared_ptr<void> prepare(OpName op, const at::Tensor& output,
                                const OpOptions& options) override;
  bool supportsWindows() const override { return true; }
  std::shared_ptr<TorchCommWindow> new_window() override;

  bool isAbortSupported() const override { return true; }
  void abort() override;
  bool isAborted() const override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setHints(const Hints& hints) override;
  std::string getInitHandle() const override;
  void reconfigure(const ReconfigureOptions& options) override;
  void setFailureListener(std::function<void(bool)> listener) override {
    members_->monitor->listen(std::move(listener));
  }

  /// Null on the CPU.
  const std::shared_ptr<ctran::GpuCommunicator>& gpu() const { return gpu_; }
  /// The work of what that has enqueued.
  WorkPtr workOf(std::shared_ptr<ctran::StreamOperation> operation) const;
  ctran::EnqueueOptions enqueueOptions(OpName op, bool async_op, const OpOptions& options,
                                       std::function<std::shared_ptr<void>()> hold) const;
  /// Among the same ranks, for tensors of the CPU. Throws where there are none yet.
  ctran::Communicator& engine() const { return members_->engine(); }

 private:
  /// What reconfigure() replaces.
  struct Members {
    std::string name;
    std::shared_ptr<ctran::Communicator> comm;  ///< null until the first reconfigure
    std::shared_ptr<ErrorMonitor> monitor;
    ctran::Communicator& engine() const;
  };

  void adopt(std::shared_ptr<ctran::Communicator> comm, at::Device device, CommOptions options);
  void enterGpu(ctran::WaitHooks& hooks);

  /// What a reduction does; `factor` is what has to live until it is done.
  ctran::Collective reduction(ctran::CollectiveKind kind, const at::Tensor& tensor, size_t count,
                              const ReduceOp& op, at::Tensor& factor) const;

  std::chrono::milliseconds timeoutOf(const OpOptions& options) const;
  /// Null if there are none. Throws for what makes no sense.
  std::shared_ptr<const ctran::CallHints> hintsOf(const OpOptions& options) const;
  WorkPtr issueBatch(const std::vector<P2POp>& ops, bool async_op, const BatchP2POptions& options);

  /// Runs, posts or enqueues the operation. What is posted holds `tensors`.
  template <typename... Held>
  WorkPtr execute(OpName op, ctran::Collective&& collective, bool async_op,
                  const OpOptions& options, const Held&... tensors);

  /// Calls the engine; an error that breaks the communicator and reaches the program is seen.
  template <typename Call>
  auto visibly(Call call);

  ctran::Replaceable<Members> members_;
  std::shared_ptr<ctran::GpuCommunicator> gpu_;  ///< null on the CPU; owns the members' comm
  mutable std::unique_ptr<ctran::InitPoint> initPoint_;  ///< made when asked for
  CommOptions options_;
  std::atomic<bool> finalized_{false};
  at::Device device_{at::kCPU};
  std::map<const void*, std::shared_ptr<void>> adopted_;  ///< memory of others, by its tensor
  /// Registered memory of the host: what keeps it, and what the engine makes of it.
  std::map<const void*, std::pair<std::shared_ptr<void>, std::shared_ptr<void>>> direct_;
};

}  // namespace torch::comms
