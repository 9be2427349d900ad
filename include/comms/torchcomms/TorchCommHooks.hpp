#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <comms/torchcomms/TorchCommBatch.hpp>
#include <comms/torchcomms/TorchCommTypes.hpp>
#include <comms/torchcomms/TorchWork.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace torch::comms {

class TorchComm;
class TorchCommWindow;

// What a pre-hook is told: a struct per operation. It owns what it holds, so that it may be kept.

/// Of every operation that moves data.
struct OpPreHookArgs {
  bool async_op;
  std::chrono::milliseconds timeout;  ///< in force: the call's, else the communicator's
};

struct SendPreHookArgs : OpPreHookArgs {
  at::Tensor tensor;
  int peer;
};
struct RecvPreHookArgs : OpPreHookArgs {
  at::Tensor tensor;
  int peer;
};
struct BatchOpIssuePreHookArgs : OpPreHookArgs {
  std::vector<P2POp> ops;
  size_t num_ops;
};
struct BroadcastPreHookArgs : OpPreHookArgs {
  at::Tensor tensor;
  int root;
};
struct AllReducePreHookArgs : OpPreHookArgs {
  at::Tensor tensor;
  ReduceOp op;
};
struct ReducePreHookArgs : OpPreHookArgs {
  at::Tensor tensor;
  int root;
  ReduceOp op;
};
struct AllGatherPreHookArgs : OpPreHookArgs {
  at::Tensor input;
  std::vector<at::Tensor> output;
};
struct AllGatherVPreHookArgs : OpPreHookArgs {
  at::Tensor input;
  std::vector<at::Tensor> output;
};
struct AllGatherSinglePreHookArgs : OpPreHookArgs {
  at::Tensor input;
  at::Tensor output;
};
struct ReduceScatterPreHookArgs : OpPreHookArgs {
  std::vector<at::Tensor> input;
  at::Tensor output;
  ReduceOp op;
};
struct ReduceScatterVPreHookArgs : OpPreHookArgs {
  std::vector<at::Tensor> input;
  at::Tensor output;
  ReduceOp op;
};
struct ReduceScatterSinglePreHookArgs : OpPreHookArgs {
  at::Tensor input;
  at::Tensor output;
  ReduceOp op;
};
struct AllToAllSinglePreHookArgs : OpPreHookArgs {
  at::Tensor input;
  at::Tensor output;
};
struct AllToAllVSinglePreHookArgs : OpPreHookArgs {
  at::Tensor input;
  at::Tensor output;
  std::vector<uint64_t> input_split_sizes;
  std::vector<uint64_t> output_split_sizes;
};
/// Of all_to_all_v_dynamic, device_alltoallv_single, alltoallv_dynamic_* and all_to_all_v_dedup*.
struct AllToAllVDynamicPreHookArgs : OpPreHookArgs {
  at::Tensor input;
  std::vector<at::Tensor> output;  ///< one, or one per rank
  at::Tensor input_split_sizes;    ///< rows, or chunks, listed for each rank
  at::Tensor output_split_sizes;   ///< rows from each rank; undefined where nobody asks for them
};
struct AllToAllPreHookArgs : OpPreHookArgs {
  std::vector<at::Tensor> input;
  std::vector<at::Tensor> output;
};
struct BarrierPreHookArgs : OpPreHookArgs {};
struct ScatterPreHookArgs : OpPreHookArgs {
  std::vector<at::Tensor> input;  ///< empty where it does not matter
  at::Tensor output;
  int root;
};
struct GatherPreHookArgs : OpPreHookArgs {
  at::Tensor input;
  std::vector<at::Tensor> output;  ///< empty where it does not matter
  int root;
};
struct GatherSinglePreHookArgs : OpPreHookArgs {
  at::Tensor input;
  at::Tensor output;
  int root;
};
struct SplitPreHookArgs {
  std::vector<int> ranks;
  std::string name;
};
struct NewWindowPreHookArgs {
  at::Tensor tensor;  ///< undefined if the window starts without one
};
// Of windows. Ranks are those of the communicator.
struct PutPreHookArgs : OpPreHookArgs {
  at::Tensor tensor;
  int peer;
  int64_t offset;  ///< elements of the tensor
};
struct GetPreHookArgs : OpPreHookArgs {
  at::Tensor tensor;
  int peer;
  int64_t offset;  ///< elements of the tensor
};
struct FlushPreHookArgs : OpPreHookArgs {
  int peer;
};
struct SignalPreHookArgs : OpPreHookArgs {
  int peer;
};
struct WaitSignalPreHookArgs : OpPreHookArgs {
  int peer;  ///< -1: that of anybody
};
struct FinalizePreHookArgs {};
struct ReconfigurePreHookArgs {
  std::string uuid;
  std::vector<std::string> init_handles;
};

using PreHookArgs =
    std::variant<SendPreHookArgs, RecvPreHookArgs, BatchOpIssuePreHookArgs, BroadcastPreHookArgs,
                 AllReducePreHookArgs, ReducePreHookArgs, AllGatherPreHookArgs,
                 AllGatherVPreHookArgs, AllGatherSinglePreHookArgs, ReduceScatterPreHookArgs,
                 ReduceScatterVPreHookArgs, ReduceScatterSinglePreHookArgs,
                 AllToAllSinglePreHookArgs, AllToAllVSinglePreHookArgs, AllToAllVDynamicPreHookArgs,
                 AllToAllPreHookArgs, BarrierPreHookArgs, ScatterPreHookArgs, GatherPreHookArgs,
                 GatherSinglePreHookArgs, SplitPreHookArgs, NewWindowPreHookArgs,
                 FinalizePreHookArgs, ReconfigurePreHookArgs, PutPreHookArgs, GetPreHookArgs,
                 FlushPreHookArgs, SignalPreHookArgs, WaitSignalPreHookArgs>;

// What a post-hook is told.

/// Of every operation that moves data but batches.
struct CollectivePostHookArgs {
  c10::weak_intrusive_ptr<TorchWork> work;
};
struct BatchOpIssuePostHookArgs {
  c10::weak_intrusive_ptr<TorchWork> work;
};
struct SplitPostHookArgs {
  std::weak_ptr<TorchComm> new_comm;  ///< empty on a rank that joined no group
};
struct NewWindowPostHookArgs {
  std::weak_ptr<TorchCommWindow> window;
};
struct FinalizePostHookArgs {};
struct ReconfigurePostHookArgs {
  int rank;
  int size;
};

using PostHookArgs =
    std::variant<CollectivePostHookArgs, BatchOpIssuePostHookArgs, SplitPostHookArgs,
                 NewWindowPostHookArgs, FinalizePostHookArgs, ReconfigurePostHookArgs>;

/// Before an operation, when its arguments have been checked. `op_id` counts the operations of all
/// communicators of the process that have hooks, from 1; of finalize it is 0. What it throws ends
/// the call: nothing has been sent, and the communicator is as before.
using PreHook = std::function<void(OpName name, uint64_t op_id, const PreHookArgs& args)>;

/// After an operation has been issued, which with `async_op` false is after it has ended. Not
/// called when the operation has thrown. What it throws reaches the caller of the operation, which
/// goes on.
using PostHook = std::function<void(uint64_t op_id, const PostHookArgs& args)>;

/// Once, when this rank learns that the communicator is broken: before `abort` here takes effect,
/// when an operation has failed, or before the process ends for an error that nobody looked at. On
/// the thread that learns it. What it throws is logged.
using AbortHook = std::function<void()>;

/// Takes a hook away. Letting go of the handle does not.
class RemovableHandle {
 public:
  explicit RemovableHandle(std::function<void()> remove) : remove_(std::move(remove)) {}

  /// The hook is not called any more. Any thread, also inside the hook; idempotent.
  void remove() const { remove_(); }

 private:
  std::function<void()> remove_;
};

}  // namespace torch::comms
