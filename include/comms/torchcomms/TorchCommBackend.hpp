#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <comms/torchcomms/TorchCommBatch.hpp>
#include <comms/torchcomms/TorchCommOptions.hpp>
#include <comms/torchcomms/TorchCommTypes.hpp>
#include <comms/torchcomms/TorchCommWindow.hpp>
#include <comms/torchcomms/TorchWork.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace torch::comms {

/// A backend is loaded only if it was compiled against exactly this.
inline constexpr std::string_view TORCHCOMM_BACKEND_ABI_VERSION = "1.5";

/// What the dynamic forms of all-to-all move: rows, whose numbers stand in int64 tensors that are
/// read when the operation starts. See ctran/collective/row_exchange.h for what it means.
struct RowExchangeCall {
  OpName op;
  int64_t rowElements = 1;
  at::Tensor input{};
  std::vector<at::Tensor> output{};  ///< one, or one per rank
  at::Tensor sendCounts{};           ///< [size]
  at::Tensor sendIndices{};          ///< undefined: all in order
  at::Tensor chunkRows{};            ///< undefined: rows are listed one by one
  at::Tensor received{};             ///< [size] written; of a combine read; may be undefined
  at::Tensor expected{};             ///< [size] or undefined
  at::Tensor receivedChunks{};       ///< [size * chunks] written; may be undefined
  at::Tensor weights{};  ///< of a combine, float32 per row of the input; may be undefined

  bool isCombine() const { return op == OpName::all_to_all_v_dedup_combine; }
  bool sendsOnce() const { return op == OpName::all_to_all_v_dedup || isCombine(); }
};

/// What carries out the operations of a TorchComm.
///
/// TorchComm has checked the arguments before a backend sees them: ranks and split sizes are in
/// range, lists have one tensor per rank, tensors are dense, contiguous, of one dtype and on the
/// device of the communicator, sizes fit. A backend checks only what is its own: which dtypes and
/// reductions it knows.
///
/// Operations with `async_op` false on CPU tensors have ended when the call returns, and throw
/// their error. With `async_op` true they return at once; the work holds every tensor of the call
/// until the operation has ended. A thread that is about to block does so under HostWait.
///
/// One thread at a time, except `abort`, `isAborted` and the methods of works.
class TorchCommBackend {
 public:
  using WorkPtr = c10::intrusive_ptr<TorchWork>;
  using Tensors = std::vector<at::Tensor>;

  virtual ~TorchCommBackend() = default;

  /// Collective over all ranks. `options.rank` and `options.size` are set.
  virtual void init(at::Device device, std::string_view name, const CommOptions& options) = 0;
  /// Waits for everything issued, then leaves. Later operations throw.
  virtual void finalize() = 0;

  virtual int getRank() const = 0;
  virtual int getSize() const = 0;
  virtual std::string_view getCommName() const = 0;
  virtual std::string_view getBackendName() const = 0;
  virtual std::string_view getBackendVersion() const;
  virtual const CommOptions& getOptions() const = 0;
  virtual const at::Device& getDevice() const = 0;

  virtual WorkPtr send(const at::Tensor& tensor, int dst, bool async_op,
                       const SendOptions& options = {}) = 0;
  virtual WorkPtr recv(at::Tensor& tensor, int src, bool async_op,
                       const RecvOptions& options = {}) = 0;
  /// Sends and receives that must not wait for one another. Not empty.
  virtual WorkPtr batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                                 const BatchP2POptions& options = {}) = 0;

  virtual WorkPtr broadcast(at::Tensor& tensor, int root, bool async_op,
                            const BroadcastOptions& options = {}) = 0;
  virtual WorkPtr all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                             const AllReduceOptions& options = {}) = 0;
  /// The tensor of every rank but the root is only read.
  virtual WorkPtr reduce(at::Tensor& tensor, int root, const ReduceOp& op, bool async_op,
                         const ReduceOptions& options = {}) = 0;

  virtual WorkPtr all_gather(const Tensors& tensor_list, const at::Tensor& tensor, bool async_op,
                             const AllGatherOptions& options = {}) = 0;
  virtual WorkPtr all_gather_v(const Tensors& tensor_list, const at::Tensor& tensor, bool async_op,
                               const AllGatherOptions& options = {}) = 0;
  virtual WorkPtr all_gather_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                                    const AllGatherSingleOptions& options = {}) = 0;

  virtual WorkPtr reduce_scatter(at::Tensor& output, const Tensors& input_list, const ReduceOp& op,
                                 bool async_op, const ReduceScatterOptions& options = {}) = 0;
  virtual WorkPtr reduce_scatter_v(at::Tensor& output, const Tensors& input_list,
                                   const ReduceOp& op, bool async_op,
                                   const ReduceScatterOptions& options = {}) = 0;
  virtual WorkPtr reduce_scatter_single(at::Tensor& output, const at::Tensor& input,
                                        const ReduceOp& op, bool async_op,
                                        const ReduceScatterSingleOptions& options = {}) = 0;

  virtual WorkPtr all_to_all_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                                    const AllToAllSingleOptions& options = {}) = 0;
  /// Split sizes count rows of dimension 0, one per rank.
  virtual WorkPtr all_to_all_v_single(at::Tensor& output, const at::Tensor& input,
                                      const std::vector<uint64_t>& output_split_sizes,
                                      const std::vector<uint64_t>& input_split_sizes, bool async_op,
                                      const AllToAllvSingleOptions& options = {}) = 0;
  /// The tensors of a list may differ in size.
  virtual WorkPtr all_to_all(const Tensors& output_tensor_list, const Tensors& input_tensor_list,
                             bool async_op, const AllToAllOptions& options = {}) = 0;

  virtual WorkPtr barrier(bool async_op, const BarrierOptions& options = {}) = 0;

  /// `input_tensor_list` matters at the root alone, elsewhere it may be empty.
  virtual WorkPtr scatter(at::Tensor& output_tensor, const Tensors& input_tensor_list, int root,
                          bool async_op, const ScatterOptions& options = {}) = 0;
  /// `output_tensor_list` matters at the root alone, elsewhere it may be empty.
  virtual WorkPtr gather(const Tensors& output_tensor_list, const at::Tensor& input_tensor,
                         int root, bool async_op, const GatherOptions& options = {}) = 0;
  /// `output` matters at the root alone. By default: gather into its equal parts.
  virtual WorkPtr gather_single(at::Tensor& output, const at::Tensor& input, int root,
                                bool async_op, const GatherSingleOptions& options = {});

  /// A communicator of the listed ranks of this one, in that order; null on ranks that pass an
  /// empty list. Collective over all ranks of this communicator. `options` are those of the child,
  /// whose rank and size are not set.
  virtual std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks,
                                                  const std::string& name,
                                                  const CommOptions& options) = 0;

  // What a backend may leave out. The defaults throw "<what> not supported by backend <name>".

  /// As reduce_scatter_single, of float32, sending bf16 that is rounded at random. `seed`: one
  /// int64, on the device or the CPU.
  virtual WorkPtr reduce_scatter_quantized(at::Tensor& output, const at::Tensor& input,
                                           const ReduceOp& op, const at::Tensor& seed,
                                           bool async_op,
                                           const ReduceScatterSingleOptions& options = {});

  /// The dynamic forms of all_to_all_v.
  virtual WorkPtr exchange_rows(const RowExchangeCall& call, bool async_op,
                                const AllToAllvSingleOptions& options = {});

  /// The next message of the tag, whoever sends it; the work says who that was.
  virtual WorkPtr recvAnySource(at::Tensor& tensor, bool async_op, const RecvOptions& options = {});

  virtual bool supportsWindows() const { return false; }
  /// A window in which nothing is exposed yet. Local.
  virtual std::shared_ptr<TorchCommWindow> new_window();

  virtual bool isAbortSupported() const { return false; }
  /// Ends every blocked and every later operation of all ranks. Any thread.
  virtual void abort();
  /// Whether the communicator is broken: aborted, timed out, a peer lost. Any thread.
  virtual bool isAborted() const { return false; }
  virtual void setTimeout(std::chrono::milliseconds timeout);
  virtual void setHints(const Hints& hints);

  /// The memory of `tensor`, which lives until `tensorDeregister`, is used again and again: the
  /// backend may prepare once what it otherwise does for each operation. By default it does not.
  virtual void tensorRegister(const at::Tensor& /*tensor*/) {}
  virtual void tensorDeregister(const at::Tensor& /*tensor*/) {}

  /// Before all_gather_single or all_to_all_single (`op`) into `output`, again and again:
  /// collective. What is returned goes with the options of these calls, and is held until the last
  /// has been made. By default there is nothing to prepare, and nobody is waited for.
  virtual std::shared_ptr<void> prepare(OpName /*op*/, const at::Tensor& /*output*/,
                                        const OpOptions& /*options*/) {
    return nullptr;
  }

  /// Of a communicator made with CommOptions::enable_reconfigure: how others can reach this
  /// process; see ReconfigureOptions.
  virtual std::string getInitHandle() const;
  /// Collective over the new members: the communicator consists of them from now on, whatever it
  /// was before. Rank, size and options are the new ones.
  virtual void reconfigure(const ReconfigureOptions& options);

  /// By which the engine ctran knows its communicator in this process; 0: there is none.
  virtual uint64_t engineToken() const { return 0; }

  /// `listener` is to be called, on any thread, when an operation has failed so that the
  /// communicator is broken, and with true just before the backend ends the process for that. By
  /// default nobody is told.
  virtual void setFailureListener(std::function<void(bool processEnds)> /*listener*/) {}

 protected:
  [[noreturn]] void unsupported(std::string_view what) const;
};

}  // namespace torch::comms
