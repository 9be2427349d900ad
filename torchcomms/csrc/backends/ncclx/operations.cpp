// Which member an operation of NcclxBackend is of, and in which order they run.

#include <ATen/ATen.h>

#include "ctran/base/error.h"
#include "torchcomms/csrc/backends/ctran/rows.hpp"
#include "torchcomms/csrc/backends/ncclx/backend.hpp"
#include "torchcomms/csrc/backends/stream/current_stream.hpp"
#include "torchcomms/csrc/backends/stream/work.hpp"

namespace torch::comms {

namespace {

/// What NCCL reduces as well as the engine does.
bool canReduce(const at::Tensor& tensor, const ReduceOp& op) {
  switch (op.type()) {
    case RedOpType::SUM:
    case RedOpType::MIN:
    case RedOpType::MAX:
      break;
    case RedOpType::AVG:
      if (!tensor.is_floating_point()) return false;
      break;
    default:
      return false;
  }
  switch (tensor.scalar_type()) {
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
    case at::kDouble:
    case at::kChar:
    case at::kByte:
    case at::kInt:
    case at::kLong:
      return true;
    default:
      return false;
  }
}

}  // namespace

void NcclxBackend::requireEngine(OpName op) const {
  if (engine_) return;
  throw ctran::Error(
      ctran::ErrorKind::Unsupported,
      std::string(toString(op)) + " needs ctran, which cannot: " + choice_->noEngine(), {},
      std::string(toString(op)));
}

template <typename Call>
TorchCommBackend::WorkPtr NcclxBackend::issue(bool vendor, bool async_op, const Call& call) {
  ctran::StreamQueue* queue = nullptr;
  if (engine_ && vendor_) {
    engine_->gpu()->throwIfBroken();
    vendor_->group()->throwIfBroken();
    queue =
        vendor ? static_cast<ctran::StreamQueue*>(vendor_->group().get()) : engine_->gpu().get();
    if (last_ && lastWasVendor_ != vendor) {
      const ctran::gpu::Stream current = stream::currentStream(getDevice());
      if (!queue->runtime().isCapturing(current)) {
        const ctran::gpu::ActiveDevice active(queue->runtime(), queue->device());
        last_->orderBehind(async_op ? queue->ownStream() : current);
      }
    }
  }
  WorkPtr work = vendor ? call(static_cast<TorchCommBackend&>(*vendor_))
                        : call(static_cast<TorchCommBackend&>(*engine_));
  if (queue != nullptr) {
    // Of what is captured there is nothing to wait for.
    if (const auto* one = dynamic_cast<const stream::StreamWork*>(work.get())) {
      last_ = one->operation();
      lastWasVendor_ = vendor;
    }
  }
  return work;
}

bool NcclxBackend::takesVendor(Kind kind, const at::Tensor& tensor, size_t bytes,
                               const ReduceOp& op) const {
  return choice_->takesVendor(kind, bytes, canReduce(tensor, op));
}

TorchCommBackend::WorkPtr NcclxBackend::broadcast(at::Tensor& tensor, int root, bool async_op,
                                                  const BroadcastOptions& options) {
  return issue(takesVendor(Kind::Broadcast, tensor.nbytes()), async_op,
               [&](auto& member) { return member.broadcast(tensor, root, async_op, options); });
}

TorchCommBackend::WorkPtr NcclxBackend::all_reduce(at::Tensor& tensor, const ReduceOp& op,
                                                   bool async_op, const AllReduceOptions& options) {
  return issue(takesVendor(Kind::AllReduce, tensor, tensor.nbytes(), op), async_op,
               [&](auto& member) { return member.all_reduce(tensor, op, async_op, options); });
}

TorchCommBackend::WorkPtr NcclxBackend::all_gather_single(at::Tensor& output,
                                                          const at::Tensor& input, bool async_op,
                                                          const AllGatherSingleOptions& options) {
  const bool vendor = !options.prepared && takesVendor(Kind::AllGather, input.nbytes());
  return issue(vendor, async_op, [&](auto& member) {
    return member.all_gather_single(output, input, async_op, options);
  });
}

TorchCommBackend::WorkPtr NcclxBackend::reduce_scatter_single(
    at::Tensor& output, const at::Tensor& input, const ReduceOp& op, bool async_op,
    const ReduceScatterSingleOptions& options) {
  return issue(takesVendor(Kind::ReduceScatter, input, input.nbytes(), op), async_op,
               [&](auto& member) {
                 return member.reduce_scatter_single(output, input, op, async_op, options);
               });
}

TorchCommBackend::WorkPtr NcclxBackend::all_to_all_single(at::Tensor& output,
                                                          const at::Tensor& input, bool async_op,
                                                          const AllToAllSingleOptions& options) {
  const bool vendor = !options.prepared && takesVendor(Kind::AllToAll, input.nbytes());
  return issue(vendor, async_op, [&](auto& member) {
    return member.all_to_all_single(output, input, async_op, options);
  });
}

// There is no choice: nobody has measured both, or ranks do not know the sizes of the others.

TorchCommBackend::WorkPtr NcclxBackend::send(const at::Tensor& tensor, int dst, bool async_op,
                                             const SendOptions& options) {
  return issue(!engine_, async_op,
               [&](auto& member) { return member.send(tensor, dst, async_op, options); });
}

TorchCommBackend::WorkPtr NcclxBackend::recv(at::Tensor& tensor, int src, bool async_op,
                                             const RecvOptions& options) {
  return issue(!engine_, async_op,
               [&](auto& member) { return member.recv(tensor, src, async_op, options); });
}

TorchCommBackend::WorkPtr NcclxBackend::batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                                                       const BatchP2POptions& options) {
  return issue(!engine_, async_op,
               [&](auto& member) { return member.batch_op_issue(ops, async_op, options); });
}

TorchCommBackend::WorkPtr NcclxBackend::reduce(at::Tensor& tensor, int root, const ReduceOp& op,
                                               bool async_op, const ReduceOptions& options) {
  return issue(!engine_, async_op,
               [&](auto& member) { return member.reduce(tensor, root, op, async_op, options); });
}

TorchCommBackend::WorkPtr NcclxBackend::all_gather(const Tensors& tensor_list,
                                                   const at::Tensor& tensor, bool async_op,
                                                   const AllGatherOptions& options) {
  return issue(!engine_, async_op, [&](auto& member) {
    return member.all_gather(tensor_list, tensor, async_op, options);
  });
}

TorchCommBackend::WorkPtr NcclxBackend::all_gather_v(const Tensors& tensor_list,
                                                     const at::Tensor& tensor, bool async_op,
                                                     const AllGatherOptions& options) {
  return issue(!engine_, async_op, [&](auto& member) {
    return member.all_gather_v(tensor_list, tensor, async_op, options);
  });
}

TorchCommBackend::WorkPtr NcclxBackend::reduce_scatter(at::Tensor& output,
                                                       const Tensors& input_list,
                                                       const ReduceOp& op, bool async_op,
                                                       const ReduceScatterOptions& options) {
  return issue(!engine_, async_op, [&](auto& member) {
    return member.reduce_scatter(output, input_list, op, async_op, options);
  });
}

TorchCommBackend::WorkPtr NcclxBackend::reduce_scatter_v(at::Tensor& output,
                                                         const Tensors& input_list,
                                                         const ReduceOp& op, bool async_op,
                                                         const ReduceScatterOptions& options) {
  return issue(!engine_, async_op, [&](auto& member) {
    return member.reduce_scatter_v(output, input_list, op, async_op, options);
  });
}

TorchCommBackend::WorkPtr NcclxBackend::all_to_all_v_single(
    at::Tensor& output, const at::Tensor& input, const std::vector<uint64_t>& output_split_sizes,
    const std::vector<uint64_t>& input_split_sizes, bool async_op,
    const AllToAllvSingleOptions& options) {
  return issue(!engine_, async_op, [&](auto& member) {
    return member.all_to_all_v_single(output, input, output_split_sizes, input_split_sizes,
                                      async_op, options);
  });
}

TorchCommBackend::WorkPtr NcclxBackend::all_to_all(const Tensors& output_tensor_list,
                                                   const Tensors& input_tensor_list, bool async_op,
                                                   const AllToAllOptions& options) {
  return issue(!engine_, async_op, [&](auto& member) {
    return member.all_to_all(output_tensor_list, input_tensor_list, async_op, options);
  });
}

// The vendor's library has no such thing.

TorchCommBackend::WorkPtr NcclxBackend::exchange_rows(const RowExchangeCall& call, bool async_op,
                                                      const AllToAllvSingleOptions& options) {
  requireEngine(call.op);
  // What goes through the host's memory is copied by the current stream.
  return issue(false, async_op && !HostRows::areFor(call),
               [&](auto& member) { return member.exchange_rows(call, async_op, options); });
}

TorchCommBackend::WorkPtr NcclxBackend::reduce_scatter_quantized(
    at::Tensor& output, const at::Tensor& input, const ReduceOp& op, const at::Tensor& seed,
    bool async_op, const ReduceScatterSingleOptions& options) {
  requireEngine(OpName::reduce_scatter_quantized);
  return issue(false, async_op, [&](auto& member) {
    return member.reduce_scatter_quantized(output, input, op, seed, async_op, options);
  });
}

TorchCommBackend::WorkPtr NcclxBackend::barrier(bool async_op, const BarrierOptions& options) {
  return issue(!engine_, async_op, [&](auto& member) { return member.barrier(async_op, options); });
}

TorchCommBackend::WorkPtr NcclxBackend::scatter(at::Tensor& output_tensor,
                                                const Tensors& input_tensor_list, int root,
                                                bool async_op, const ScatterOptions& options) {
  return issue(!engine_, async_op, [&](auto& member) {
    return member.scatter(output_tensor, input_tensor_list, root, async_op, options);
  });
}

TorchCommBackend::WorkPtr NcclxBackend::gather(const Tensors& output_tensor_list,
                                               const at::Tensor& input_tensor, int root,
                                               bool async_op, const GatherOptions& options) {
  return issue(!engine_, async_op, [&](auto& member) {
    return member.gather(output_tensor_list, input_tensor, root, async_op, options);
  });
}

TorchCommBackend::WorkPtr NcclxBackend::gather_single(at::Tensor& output, const at::Tensor& input,
                                                      int root, bool async_op,
                                                      const GatherSingleOptions& options) {
  return issue(!engine_, async_op, [&](auto& member) {
    return member.gather_single(output, input, root, async_op, options);
  });
}

}  // namespace torch::comms
