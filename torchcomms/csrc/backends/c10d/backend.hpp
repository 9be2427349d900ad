#pragma once

#include <chrono>
#include <comms/torchcomms/TorchCommBackend.hpp>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "torchcomms/csrc/backends/c10d/device_work.hpp"
#include "torchcomms/csrc/backends/c10d/lane.hpp"
#include "torchcomms/csrc/backends/c10d/reduction.hpp"
#include "torchcomms/csrc/backends/c10d/work.hpp"

namespace torch::comms {

struct C10dGroup;

/// Makes a c10d backend: collective over its ranks, which share `store` and nothing else does.
using C10dFactory = std::function<c10::intrusive_ptr<c10d::Backend>(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    std::chrono::milliseconds timeout, const Hints& hints)>;

/// What there is to know of a c10d backend.
struct C10dKind {
  std::string name;
  C10dFactory factory;
  const char* device = "cpu";  ///< whose tensors it takes
  bool reducesBits = true;     ///< it has BAND, BOR and BXOR

  /// Its operations are work on streams: to wait for one orders the current stream behind it.
  bool isOnStreams() const { return std::string_view(device) != "cpu"; }
};

/// A c10d backend as a backend of ours.
///
/// Of the c10d backend it uses allreduce, reduce, broadcast, allgather, gather, scatter,
/// alltoall_base, barrier, send, recv and recvAnysource, and groups of calls where it has them. All
/// of them move bytes, so every dtype can be moved; what is reduced is encoded (see Reduction).
/// Reduce-scatter exchanges the parts and reduces them here, in the order of ranks.
///
/// Collectives run one after another on a lane; a synchronous one that finds the lane idle runs on
/// the caller's thread. Sends and receives have a lane per peer and direction, on which they are
/// waited for; they are issued at once, in order. (A c10d work of a send or receive cannot be asked
/// whether it has ended, only waited for: hence threads.)
///
/// On streams a call is issued on the caller's thread, synchronous ones on the current stream,
/// asynchronous ones on a stream of the communicator's that follows the current one. There are no
/// lanes and no timeouts then, but for connecting; finalize waits at most the timeout.
///
/// After a failure nothing is known of the c10d backend's connections, so every later operation
/// throws the error again. Like the c10d backend, it cannot send to itself.
class C10dBackend final : public TorchCommBackend {
 public:
  explicit C10dBackend(C10dKind kind);
  ~C10dBackend() override;
  C10dBackend(const C10dBackend&) = delete;
  C10dBackend& operator=(const C10dBackend&) = delete;

  void init(at::Device device, std::string_view name, const CommOptions& options) override;
  void finalize() override;

  int getRank() const override { return options_.rank.value(); }
  int getSize() const override { return options_.size.value(); }
  std::string_view getCommName() const override { return options_.name; }
  std::string_view getBackendName() const override { return kind_.name; }
  std::string_view getBackendVersion() const override;
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

  bool isAborted() const override;
  void setTimeout(std::chrono::milliseconds timeout) override { options_.timeout = timeout; }
  void setHints(const Hints& hints) override { options_.hints = hints; }
  void setFailureListener(std::function<void(bool)> listener) override;

 private:
  using Body = std::function<void(const class C10dCall&)>;

  std::chrono::milliseconds timeoutOf(const OpOptions& options) const;
  /// Runs or posts a collective. What `body` captures is held until it has ended.
  WorkPtr execute(OpName op, bool async_op, const OpOptions& options, Body body);
  WorkPtr executeOnStream(OpName op, bool async_op, const OpOptions& options, const Body& body);
  /// Forgets what has ended on the device; whether nothing is left.
  bool forgetEnded();
  /// Waits until the device has done what was issued. Throws ctran::Error (Timeout).
  void drainDevice();
  WorkPtr exchange(OpName op, const std::vector<P2POp>& ops, bool async_op,
                   const OpOptions& options);
  WorkPtr exchangeOnStream(OpName op, const std::vector<P2POp>& ops, bool async_op,
                           const OpOptions& options);
  Reduction reductionOf(const at::Tensor& example, const ReduceOp& op) const;

  const C10dKind kind_;
  CommOptions options_;
  at::Device device_{at::kCPU};
  std::shared_ptr<C10dGroup> group_;
  Lane collectives_;
  std::map<std::pair<int, P2POp::Type>, Lane> peers_;
  std::optional<c10::Stream> stream_;                      ///< of asynchronous calls on streams
  std::deque<std::shared_ptr<DeviceOperation>> onDevice_;  ///< what may not have ended
  uint64_t splits_ = 0;
};

}  // namespace torch::comms
