#pragma once

#include <comms/torchcomms/TorchCommBackend.hpp>
#include <functional>
#include <memory>
#include <string>

#include "torchcomms/csrc/backends/ctran/backend.hpp"
#include "torchcomms/csrc/backends/nccl/backend.hpp"
#include "torchcomms/csrc/backends/ncclx/choice.hpp"

namespace torch::comms {

/// The engine first, and NCCL where that is faster: two communicators of the same ranks, of which
/// each call takes one, by its kind, bytes, type and reduction, so by what all ranks agree about.
///
/// Without GPUs that reach each other there is only NCCL, without NCCL on every rank only the
/// engine. Operations run in the order of the calls, whichever member they are of. When one member
/// breaks, the other does, with the same error.
class NcclxBackend final : public TorchCommBackend {
 public:
  NcclxBackend() = default;
  ~NcclxBackend() override;
  NcclxBackend(const NcclxBackend&) = delete;
  NcclxBackend& operator=(const NcclxBackend&) = delete;

  void init(at::Device device, std::string_view name, const CommOptions& options) override;
  void finalize() override;

  int getRank() const override { return *options_.rank; }
  int getSize() const override { return *options_.size; }
  std::string_view getCommName() const override { return options_.name; }
  std::string_view getBackendName() const override { return "ncclx"; }
  /// NCCL's, if there is one.
  std::string_view getBackendVersion() const override;
  const CommOptions& getOptions() const override { return options_; }
  const at::Device& getDevice() const override { return any().getDevice(); }

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
  bool supportsWindows() const override { return any().supportsWindows(); }
  std::shared_ptr<TorchCommWindow> new_window() override;

  bool isAbortSupported() const override { return true; }
  void abort() override;
  bool isAborted() const override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setHints(const Hints& hints) override { options_.hints = hints; }
  void tensorRegister(const at::Tensor& tensor) override;
  std::shared_ptr<void> prepare(OpName op, const at::Tensor& output,
                                const OpOptions& options) override;
  void tensorDeregister(const at::Tensor& tensor) override;
  void setFailureListener(std::function<void(bool)> listener) override;

 private:
  using Kind = ctran::CollectiveKind;

  /// From here on there is a choice between the members.
  void settle(const CommOptions& options, std::string noEngine, std::string noVendor);
  std::string whyNoVendor() const;
  void chooseTable();
  TorchCommBackend& any() const;
  bool takesVendor(Kind kind, size_t bytes) const {
    return choice_->takesVendor(kind, bytes, true);
  }
  bool takesVendor(Kind kind, const at::Tensor& tensor, size_t bytes, const ReduceOp& op) const;
  /// Throws ctran::Error (Unsupported) if there is only the vendor's library.
  void requireEngine(OpName op) const;
  /// Makes the call of the member, behind what the other one has been given.
  template <typename Call>
  WorkPtr issue(bool vendor, bool async_op, const Call& call);
  void connectFailures();

  std::shared_ptr<CtranBackend> engine_;  ///< null: the GPUs do not reach each other
  std::shared_ptr<NcclBackend> vendor_;   ///< null: some rank has no library, or shares its GPU
  std::shared_ptr<ncclx::Choice> choice_;
  CommOptions options_;
  std::shared_ptr<ctran::StreamOperation> last_;  ///< that was not captured
  bool lastWasVendor_ = false;
  std::function<void(bool)> listener_;
};

}  // namespace torch::comms
