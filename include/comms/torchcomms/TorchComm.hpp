#pragma once

#include <c10/util/FunctionRef.h>

#include <comms/torchcomms/TorchCommBackend.hpp>
#include <comms/torchcomms/TorchCommBatch.hpp>
#include <comms/torchcomms/TorchCommFactory.hpp>
#include <comms/torchcomms/TorchCommHooks.hpp>
#include <comms/torchcomms/TorchCommOptions.hpp>
#include <comms/torchcomms/TorchCommTypes.hpp>
#include <comms/torchcomms/TorchWork.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace torch::comms {

struct ArgumentChecks;
class HookRegistry;

/// A group of ranks and the operations among them: checks the arguments, then asks its backend.
///
/// Every operation is collective unless it names a peer: all ranks call the same ones in the same
/// order. A wrong argument throws before anything is sent (ctran::Error saying what). With
/// `async_op` false an operation on CPU tensors has ended when the call returns; with true see
/// TorchWork. Tensors are dense, contiguous, and on the device of the communicator.
///
/// One thread at a time per communicator, except `abort`, `isAborted` and the methods of works.
class TorchComm : public std::enable_shared_from_this<TorchComm> {
 public:
  using WorkPtr = c10::intrusive_ptr<TorchWork>;
  using Tensors = std::vector<at::Tensor>;

  /// Of an initialised backend; `new_comm` is the usual way.
  explicit TorchComm(std::shared_ptr<TorchCommBackend> backend);

  /// Waits for everything issued, then leaves. Every later operation throws.
  void finalize();
  bool isFinalized() const { return finalized_; }

  int getRank() const { return rank_; }
  int getSize() const { return size_; }
  std::string_view getCommName() const { return impl_->getCommName(); }
  std::string_view getBackend() const { return impl_->getBackendName(); }
  std::string_view getBackendVersion() const { return impl_->getBackendVersion(); }
  const CommOptions& getOptions() const { return impl_->getOptions(); }
  const at::Device& getDevice() const { return device_; }
  /// The members as ranks of the communicator that `new_comm` made, in the order of this one's.
  const std::vector<int>& getRanks() const { return ranks_; }
  const std::shared_ptr<TorchCommBackend>& getBackendImpl() const { return impl_; }

  WorkPtr send(const at::Tensor& tensor, int dst, bool async_op, const SendOptions& options = {});
  WorkPtr recv(at::Tensor& tensor, int src, bool async_op, const RecvOptions& options = {});
  /// The next message of the tag, whoever sends it: TorchWork::sourceRank says who. Takes part in
  /// the order of messages: what receives that were called before wait for goes to them.
  WorkPtr recvAnySource(at::Tensor& tensor, bool async_op, const RecvOptions& options = {});
  BatchSendRecv batch_op_create() { return BatchSendRecv(shared_from_this()); }
  WorkPtr batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                         const BatchP2POptions& options = {});

  WorkPtr broadcast(at::Tensor& tensor, int root, bool async_op,
                    const BroadcastOptions& options = {});
  WorkPtr all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                     const AllReduceOptions& options = {});
  WorkPtr reduce(at::Tensor& tensor, int root, const ReduceOp& op, bool async_op,
                 const ReduceOptions& options = {});
  WorkPtr all_gather(const Tensors& tensor_list, const at::Tensor& tensor, bool async_op,
                     const AllGatherOptions& options = {});
  WorkPtr all_gather_v(const Tensors& tensor_list, const at::Tensor& tensor, bool async_op,
                       const AllGatherOptions& options = {});
  WorkPtr all_gather_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                            const AllGatherSingleOptions& options = {});
  WorkPtr reduce_scatter(at::Tensor& output, const Tensors& input_list, const ReduceOp& op,
                         bool async_op, const ReduceScatterOptions& options = {});
  WorkPtr reduce_scatter_v(at::Tensor& output, const Tensors& input_list, const ReduceOp& op,
                           bool async_op, const ReduceScatterOptions& options = {});
  WorkPtr reduce_scatter_single(at::Tensor& output, const at::Tensor& input, const ReduceOp& op,
                                bool async_op, const ReduceScatterSingleOptions& options = {});
  /// As reduce_scatter_single, a sum or an average of float32, but contributions travel as bf16,
  /// rounded up or down at random so that their expected value is what they were. The same `seed`,
  /// one int64 on the communicator's device or on the CPU, gives the same bits; an undefined one is
  /// drawn from torch's generator of the CPU.
  WorkPtr reduce_scatter_quantized(at::Tensor& output, const at::Tensor& input, const ReduceOp& op,
                                   const at::Tensor& seed, bool async_op,
                                   const ReduceScatterSingleOptions& options = {});
  WorkPtr all_to_all_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                            const AllToAllSingleOptions& options = {});
  WorkPtr all_to_all_v_single(at::Tensor& output, const at::Tensor& input,
                              const std::vector<uint64_t>& output_split_sizes,
                              const std::vector<uint64_t>& input_split_sizes, bool async_op,
                              const AllToAllvSingleOptions& options = {});
  WorkPtr all_to_all(const Tensors& output_tensor_list, const Tensors& input_tensor_list,
                     bool async_op, const AllToAllOptions& options = {});

  // Forms of all_to_all_v for sizes that only the senders know. Sizes, counts and indices are int64
  // tensors on the communicator's device; they are read when the operation starts, after those
  // issued before it, which may write them. `input` and outputs do not overlap.

  /// Rank r is sent `input_split_sizes[r]` rows of `input`, of dimension 0, one part after another.
  /// `output` receives all that is sent here, in the order of the senders, and
  /// `output_split_sizes[r]` becomes how many rows came from rank r. What does not fit is an error
  /// that names the sender, and nothing is written.
  WorkPtr all_to_all_v_dynamic(at::Tensor& output, const at::Tensor& input,
                               at::Tensor& output_split_sizes, const at::Tensor& input_split_sizes,
                               bool async_op, const AllToAllvSingleOptions& options = {});
  /// As all_to_all_v_single, with sizes in tensors.
  WorkPtr device_alltoallv_single(at::Tensor& output, const at::Tensor& input,
                                  const at::Tensor& output_split_sizes,
                                  const at::Tensor& input_split_sizes, bool async_op,
                                  const AllToAllvSingleOptions& options = {});
  /// `input_tensor` is chunks of `input_chunk_sizes` rows of `hidden_dim` elements. Rank r is sent
  /// those that `input_chunk_indices` lists for it: `input_chunk_count_per_rank[r]`, rank after
  /// rank. `output_tensor_list[r]` receives what rank r sends, and
  /// `output_chunk_sizes_per_rank[r * chunks + k]` becomes the rows that came of its chunk k. All
  /// ranks have as many chunks.
  WorkPtr alltoallv_dynamic_dispatch(
      const Tensors& output_tensor_list, at::Tensor& output_chunk_sizes_per_rank,
      const at::Tensor& input_tensor, const at::Tensor& input_chunk_sizes,
      const at::Tensor& input_chunk_indices, const at::Tensor& input_chunk_count_per_rank,
      int64_t hidden_dim, bool async_op, const AllToAllvSingleOptions& options = {});
  /// The way back: as alltoallv_dynamic_dispatch, with what comes one after another in
  /// `output_tensor`, in the order of the senders.
  WorkPtr alltoallv_dynamic_combine(at::Tensor& output_tensor, const at::Tensor& input_tensor,
                                    const at::Tensor& input_chunk_sizes,
                                    const at::Tensor& input_chunk_indices,
                                    const at::Tensor& input_chunk_count_per_rank,
                                    int64_t hidden_dim, bool async_op,
                                    const AllToAllvSingleOptions& options = {});
  /// As all_to_all_v_dynamic, of the rows of `input` that `input_indices` lists:
  /// `input_split_sizes[r]` for rank r, rank after rank. A row that is listed for several ranks of
  /// another host crosses the network once.
  WorkPtr all_to_all_v_dedup(at::Tensor& output, const at::Tensor& input,
                             at::Tensor& output_split_sizes, const at::Tensor& input_indices,
                             const at::Tensor& input_split_sizes, bool async_op,
                             const AllToAllvSingleOptions& options = {});
  /// The way back of all_to_all_v_dedup: `input` is what came, `input_split_sizes[r]` rows from
  /// rank r; they return there. Row `output_indices[i]` of `output` becomes the sum of all rows
  /// that return for it, each times its entry in `weights` (float32, per row of `input`; undefined:
  /// 1), or zeros; `output_indices` and `output_split_sizes` are those of the dispatch. Sums are in
  /// fp32 (float64: fp64), and what crosses the network is one sum per row and host.
  WorkPtr all_to_all_v_dedup_combine(at::Tensor& output, const at::Tensor& input,
                                     const at::Tensor& weights, const at::Tensor& input_split_sizes,
                                     const at::Tensor& output_indices,
                                     const at::Tensor& output_split_sizes, bool async_op,
                                     const AllToAllvSingleOptions& options = {});
  WorkPtr barrier(bool async_op, const BarrierOptions& options = {});
  WorkPtr scatter(at::Tensor& output_tensor, const Tensors& input_tensor_list, int root,
                  bool async_op, const ScatterOptions& options = {});
  WorkPtr gather(const Tensors& output_tensor_list, const at::Tensor& input_tensor, int root,
                 bool async_op, const GatherOptions& options = {});
  WorkPtr gather_single(at::Tensor& output, const at::Tensor& input, int root, bool async_op,
                        const GatherSingleOptions& options = {});

  /// A communicator of the listed ranks of this one, in that order, with this one's options.
  /// Collective over all ranks of this one: every member of a group passes the same list, a rank
  /// that joins none an empty one, and gets null.
  std::shared_ptr<TorchComm> split(const std::vector<int>& ranks, const std::string& name);
  /// As above with the options of the child.
  std::shared_ptr<TorchComm> split(const std::vector<int>& ranks, const std::string& name,
                                   const CommOptions& options);

  /// A window onto `tensor`, which is registered then: collective. Without one: tensor_register is
  /// to follow.
  std::shared_ptr<TorchCommWindow> new_window(const std::optional<at::Tensor>& tensor = {});
  /// A window onto `window_size` bytes of fresh memory per rank, with `signal_size` bytes of
  /// signals, eight each: collective. `cpu_buf`: the memory is the host's, whatever the device.
  std::shared_ptr<TorchCommWindow> window_allocate(int64_t window_size, bool cpu_buf = false,
                                                   std::optional<int64_t> signal_size = {});

  /// A communicator of the same ranks, with this one's options: collective over them.
  std::shared_ptr<TorchComm> dup(const std::string& name = {});
  std::shared_ptr<TorchComm> dup(const std::string& name, const CommOptions& options);

  /// See ReconfigureOptions. Needs CommOptions::enable_reconfigure.
  std::string getInitHandle() const;
  /// From now on the communicator consists of the processes of the listed handles: collective over
  /// them. A broken one works again; what was in flight fails. getRanks counts from 0 anew.
  void reconfigure(const ReconfigureOptions& options);

  /// Says that the memory of `tensor` will be used again and again; the communicator holds it.
  /// Throws when it is registered.
  void tensorRegister(const at::Tensor& tensor);
  /// Throws when it is not registered.
  void tensorDeregister(const at::Tensor& tensor);
  /// The backend's, see TorchCommFactory::get_allocator.
  std::shared_ptr<c10::Allocator> getMemAllocator() const;

  bool isAbortSupported() const { return impl_->isAbortSupported(); }
  void abort();
  bool isAborted() const { return impl_->isAborted(); }
  void setTimeout(std::chrono::milliseconds timeout);
  void setHints(const Hints& hints);

  // Hooks live as long as the communicator does, or until it is finalized. They are called in the
  // order of their registration. Those of a communicator are not those of its children.

  RemovableHandle registerPreHook(PreHook hook);
  RemovableHandle registerPostHook(PostHook hook);
  RemovableHandle registerAbortHook(AbortHook hook);

 private:
  TorchComm(std::shared_ptr<TorchCommBackend> backend, std::vector<int> ranks);

  friend class BatchSendRecv;

  ArgumentChecks begin(OpName op) const;
  void checkMessage(const P2POp& op) const;
  /// Issues an operation between its hooks, where there are any.
  template <typename Args, typename Issue, typename... Fields>
  WorkPtr hooked(OpName op, bool async_op, const OpOptions& options, Issue issue,
                 const Fields&... fields);
  WorkPtr exchangeRows(const RowExchangeCall& call, bool async_op,
                       const AllToAllvSingleOptions& options);
  void listenForFailures();
  std::shared_ptr<TorchCommWindow> makeWindow(const at::Tensor& tensor,
                                              c10::function_ref<void(TorchCommWindow&)> prepare);

  std::shared_ptr<TorchCommBackend> impl_;
  at::Device device_;
  int rank_;
  int size_;
  std::vector<int> ranks_;
  std::shared_ptr<HookRegistry> hooks_;
  std::vector<at::Tensor> registered_;
  uint64_t splits_ = 0;
  bool finalized_ = false;
};

/// Makes a communicator: collective over its ranks. An empty `name` takes `options.name`, or
/// "default". Throws ctran::Error and its descendants.
std::shared_ptr<TorchComm> new_comm(const std::string& backend, at::Device device,
                                    const std::string& name = {}, const CommOptions& options = {});

}  // namespace torch::comms
