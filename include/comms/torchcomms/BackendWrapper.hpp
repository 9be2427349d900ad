#pragma once

#include <torch/version.h>

#include <chrono>
#include <comms/torchcomms/TorchComm.hpp>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

/// Whether torch is 2.`minor` or newer: c10d::Backend and c10d::Work have grown.
#define TORCHCOMMS_TORCH_SINCE(minor) \
  (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= (minor)))

namespace torch::comms {

struct CompletionHooks;
class OutputCopy;
class StagedOutputs;

/// A TorchComm as a backend of torch.distributed.
///
/// Every collective of c10d, its coalesced form, and its form for several tensors at once, which is
/// that many operations with one work. A call issues its operation and returns; with `asyncOp`
/// false it then waits for the end. Tensors that are not contiguous are copied. Between
/// startCoalescing and endCoalescing sends and receives are collected and issued together at the
/// end, so that none waits for another; collectives start at once.
///
/// Unlike a TorchComm, a wrapper may be used by several threads. They issue one after another; what
/// they wait for does not hold the others up.
class BackendWrapper final : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  explicit BackendWrapper(std::shared_ptr<TorchComm> comm);
  ~BackendWrapper() override;

  const std::shared_ptr<TorchComm>& getComm() const { return comm_; }

  const std::string getBackendName() const override { return std::string(comm_->getBackend()); }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override;
  /// `outputs[rank][i]` is what `rank` passed as `inputs[i]`.
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& outputSplits,
                        std::vector<int64_t>& inputSplits,
                        const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  WorkPtr send(Tensors& tensors, int dstRank, int tag) override;
  WorkPtr recv(Tensors& tensors, int srcRank, int tag) override;
  /// The work's sourceRank() says who has sent the message.
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
#if TORCHCOMMS_TORCH_SINCE(14)
  WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input,
                             const c10d::GatherOptions& opts) override;
#endif

  /// Every rank checks in at the store; rank 0 throws which ones have not by the deadline, and the
  /// others get its verdict. The communicator stays usable. Without a store: a barrier.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool waitAllRanks) override;

  /// The number of collectives issued.
  uint64_t getSequenceNumberForGroup() override;
  void setSequenceNumberForGroup() override {}

  void abort() override;
  /// Finalizes the communicator, unless that has been done.
  void shutdown() override;
  c10d::ErrorType getError() override;
  std::shared_ptr<c10::Allocator> getMemAllocator() override;

  using PoolId = std::pair<uint64_t, uint64_t>;
  /// Registers all memory of a pool, in segments that it keeps until deregisterPool, but for those
  /// that are registered. Throws ctran::Error; those before stay.
  void registerPool(PoolId pool, const Tensors& segments);
  /// Throws ctran::Error(InvalidArgument) if it is not registered.
  void deregisterPool(PoolId pool);

#if TORCHCOMMS_TORCH_SINCE(9)
  void setTimeout(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<Options> getBackendOptions() override;
  /// Collective over all ranks; null on ranks that are not listed. `store` is for the child's
  /// monitoredBarrier. Torch makes one for each split, and calls this once on a rank that is
  /// listed, but for each device on the others: of these calls the first one takes part.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& opts) override;
#endif
#if TORCHCOMMS_TORCH_SINCE(15)
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(int64_t hookId, c10d::CompletionHook hook) override;
  void unregisterCompletionHook(int64_t hookId) override;
  /// Called once, when this rank learns that the communicator is broken.
  bool supportsAbortHooks() const override { return true; }
  void registerAbortHook(int64_t hookId, c10d::AbortHook hook) override;
  void unregisterAbortHook(int64_t hookId) override;
  bool supportsWindow() const override { return comm_->getBackendImpl()->supportsWindows(); }
  c10::intrusive_ptr<c10d::Window> new_window(const std::optional<at::Tensor>& tensor) override;
  bool supportsReconfigure() const override { return comm_->getOptions().enable_reconfigure; }
  c10d::ReconfigureHandle get_reconfigure_handle() const override;
  c10::intrusive_ptr<c10d::Work> reconfigure(const c10d::ReconfigureOptions& opts) override;
#endif

 private:
  struct Call;
  struct Coalescing;

  /// Issues with the lock, waits if asked, makes the work.
  template <typename Issue>
  WorkPtr collective(const Call& call, Tensors results, Issue issue);
  WorkPtr exchange(P2POp::Type type, const Tensors& tensors, int peer, int tag);
  WorkPtr wrap(const Call& call, uint64_t sequence, Tensors results,
               c10::intrusive_ptr<TorchWork> work);

  // With issuing_ held:
  /// A work that ends when the outputs have been copied back.
  c10::intrusive_ptr<TorchWork> copyLater(c10::intrusive_ptr<TorchWork> work,
                                          StagedOutputs outputs);
  /// Waits for operations that will copy into the memory of `tensor`.
  void settle(const at::Tensor& tensor);
  /// Contiguous, with what earlier calls write.
  at::Tensor readable(const at::Tensor& tensor);
  Tensors readable(const Tensors& tensors);

  const std::shared_ptr<TorchComm> comm_;
  const c10::intrusive_ptr<Options> options_;
  std::mutex issuing_;  ///< guards calls of comm_ and what follows
  std::unique_ptr<Coalescing> coalescing_;
  std::map<PoolId, Tensors> pools_;              ///< registered segments
  std::list<std::weak_ptr<OutputCopy>> copies_;  ///< of operations that may go on
  uint64_t sequence_ = 0;
  uint64_t monitoredBarriers_ = 0;             ///< of these members
  std::string members_;                        ///< the uuid of the last `reconfigure`
  c10::intrusive_ptr<c10d::Store> leftOutOf_;  ///< of the last split, if it is not in it
  const std::shared_ptr<CompletionHooks> hooks_;
  std::mutex aborting_;
  std::map<int64_t, RemovableHandle> abortHooks_;  ///< guarded by aborting_
};

}  // namespace torch::comms
