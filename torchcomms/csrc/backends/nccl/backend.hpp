#pragma once

#include <comms/torchcomms/TorchCommBackend.hpp>
#include <functional>
#include <map>
#include <memory>
#include <tuple>

#include "torchcomms/csrc/backends/nccl/group.hpp"

namespace torch::comms {

/// The vendor's library: NCCL, or another of its interface.
///
/// With `async_op` false an operation runs on the stream that is current for the caller, with true
/// on the communicator's own stream, behind what the current one holds. While a stream captures,
/// every operation runs on it and belongs to its graph. No call waits for the device.
class NcclBackend final : public TorchCommBackend {
 public:
  explicit NcclBackend(const nccl::Vendor& vendor) : vendor_(vendor) {}
  ~NcclBackend() override;
  NcclBackend(const NcclBackend&) = delete;
  NcclBackend& operator=(const NcclBackend&) = delete;

  void init(at::Device device, std::string_view name, const CommOptions& options) override;
  void finalize() override;

  int getRank() const override { return options_.rank.value(); }
  int getSize() const override { return options_.size.value(); }
  std::string_view getCommName() const override { return options_.name; }
  std::string_view getBackendName() const override;
  std::string_view getBackendVersion() const override { return version_; }
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

  bool supportsWindows() const override { return vendor_.platform == ctran::gpu::Platform::Cuda; }
  std::shared_ptr<TorchCommWindow> new_window() override;

  bool isAbortSupported() const override { return true; }
  void abort() override;
  bool isAborted() const override;
  void setTimeout(std::chrono::milliseconds timeout) override { options_.timeout = timeout; }
  void tensorRegister(const at::Tensor& tensor) override;
  void tensorDeregister(const at::Tensor& tensor) override;
  void setFailureListener(std::function<void(bool)> listener) override {
    group_->setup().monitor->listen(std::move(listener));
  }

  const std::shared_ptr<nccl::Group>& group() const { return group_; }
  const nccl::Library& library() const { return *library_; }

 private:
  /// One call while it is being issued.
  struct Call {
    nccl::Group& group;
    const nccl::Library& library;
    nccl::Comm comm;
    nccl::Stream stream;

    void check(nccl::Result result, const char* function) const { group.check(result, function); }
    void send(const void* from, size_t bytes, int peer) const;
    void recv(void* to, size_t bytes, int peer) const;
  };
  enum class Form : uint8_t { One, Grouped, None };  ///< of the library's calls
  class WindowHost;

  void adopt(std::shared_ptr<nccl::Group> group, const CommOptions& options);
  nccl::GroupSetup setup(const CommOptions& options,
                         std::shared_ptr<nccl::Bulletin> bulletin) const;
  /// Issues an operation: `calls` asks the library, `after` puts more on the stream. `hold` makes
  /// what the work, or the graph, keeps.
  WorkPtr run(OpName op, Form form, bool async_op, const OpOptions& options,
              const std::function<void(const Call&)>& calls,
              const std::function<void(nccl::Stream)>& after,
              const std::function<std::shared_ptr<void>()>& hold);
  /// As `run`; what is issued holds `tensors`.
  template <typename Calls, typename... Held>
  WorkPtr execute(OpName op, Form form, bool async_op, const OpOptions& options, const Calls& calls,
                  const Held&... tensors);
  /// As `execute`, with more on the stream after it.
  template <typename Calls, typename After, typename... Held>
  WorkPtr executeThen(OpName op, Form form, bool async_op, const OpOptions& options,
                      const Calls& calls, const After& after, const Held&... tensors);
  /// As `execute`, for `calls(call, element, redOp)` that reduce tensors like `example`.
  template <typename Calls, typename... Held>
  WorkPtr executeReduction(OpName op, Form form, bool async_op, const OpOptions& options,
                           const at::Tensor& example, const ReduceOp& reduceOp, const Calls& calls,
                           const Held&... tensors);
  WorkPtr executeExchange(OpName op, bool async_op, const OpOptions& options,
                          const Tensors& outputs, const Tensors& inputs);
  WorkPtr executePeer(OpName op, bool async_op, const OpOptions& options,
                      const std::vector<P2POp>& ops);

  const nccl::Vendor& vendor_;
  const nccl::Library* library_ = nullptr;
  std::string version_;
  CommOptions options_;
  at::Device device_{at::kCPU};
  std::shared_ptr<nccl::Group> group_;
  bool finalized_ = false;
  at::Tensor barrierWord_;
  std::map<const void*, void*> registered_;  ///< the library's handle of each tensor's memory
  uint64_t splits_ = 0;
  uint64_t windows_ = 0;
};

}  // namespace torch::comms
