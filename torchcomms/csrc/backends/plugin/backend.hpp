#pragma once

#include <comms/torchcomms/plugin.h>

#include <comms/torchcomms/TorchCommBackend.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "torchcomms/csrc/backends/plugin/operation.hpp"

namespace torch::comms {

using PluginEntry = const torchcomms_plugin* (*)(uint32_t hostVersion);

/// Makes the plug-in that `entry` describes the backend of that name. Throws ctran::Error when it
/// cannot be used.
void registerPlugin(const std::string& backend, PluginEntry entry);

/// A backend behind comms/torchcomms/plugin.h. What the interface does not have is expressed by
/// what it has: operations on one large tensor are those on its parts, a batch is its messages, a
/// child is a communicator of its own that meets at the parent's store.
class PluginBackend final : public TorchCommBackend {
 public:
  PluginBackend(std::string backend, const torchcomms_plugin& plugin)
      : backendName_(std::move(backend)), plugin_(plugin) {}
  ~PluginBackend() override;
  PluginBackend(const PluginBackend&) = delete;
  PluginBackend& operator=(const PluginBackend&) = delete;

  void init(at::Device device, std::string_view name, const CommOptions& options) override;
  void finalize() override;

  int getRank() const override { return options_.rank.value(); }
  int getSize() const override { return options_.size.value(); }
  std::string_view getCommName() const override { return options_.name; }
  std::string_view getBackendName() const override { return backendName_; }
  std::string_view getBackendVersion() const override {
    return plugin_.plugin_version ? plugin_.plugin_version : "unknown";
  }
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

  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;

  void setTimeout(std::chrono::milliseconds timeout) override { options_.timeout = timeout; }

 private:
  struct Asked {
    OpName name;
    torchcomms_kind kind;
    int root = 0;
    int tag = 0;
    const ReduceOp* op = nullptr;
  };

  WorkPtr start(const Asked& asked, const Tensors& inputs, const Tensors& outputs, bool async_op,
                const OpOptions& options);
  void require(OpName name) const;

  const std::string backendName_;
  const torchcomms_plugin plugin_;  ///< with zeros for what it does not have
  std::unique_ptr<PluginStore> store_;
  torchcomms_comm* comm_ = nullptr;
  CommOptions options_;
  at::Device device_{at::kCPU};
  std::vector<std::shared_ptr<PluginOperation>> running_;
  uint64_t splits_ = 0;
};

}  // namespace torch::comms
