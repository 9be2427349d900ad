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

bool NcclxBackend::takesVendor(const Call& call) const {
  if (!engine_) return true;
  if (call.prepared) return false;
  const auto faster = [&](Kind kind, const at::Tensor& tensor) {
    return choice_->takesVendor(kind, tensor.nbytes(),
                                !call.reduceOp || canReduce(tensor, *call.reduceOp));
  };
  switch (call.op) {
    case OpName::broadcast:
      return faster(Kind::Broadcast, call.outputs[0]);
    case OpName::all_reduce:
      return faster(Kind::AllReduce, call.inputs[0]);
    case OpName::all_gather_single:
      return faster(Kind::AllGather, call.inputs[0]);
    case OpName::reduce_scatter_single:
      return faster(Kind::ReduceScatter, call.inputs[0]);
    case OpName::all_to_all_single:
      return faster(Kind::AllToAll, call.inputs[0]);
    default:
      return false;  // nobody has measured both
  }
}

TorchCommBackend::WorkPtr NcclxBackend::issue(const Call& call) {
  if (call.op == OpName::recv && call.root == kAnySource) unsupported(call);
  // The vendor's library has no such thing.
  if (call.rows || call.op == OpName::reduce_scatter_quantized) requireEngine(call.op);
  const bool vendor = takesVendor(call);
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
        // What goes through the host's memory is copied by the current stream.
        const bool aside = call.async && !(call.rows && HostRows::areFor(*call.rows));
        last_->orderBehind(aside ? queue->ownStream() : current);
      }
    }
  }
  WorkPtr work = vendor ? vendor_->issue(call) : engine_->issue(call);
  if (queue != nullptr) {
    // Of what is captured there is nothing to wait for.
    if (const auto* one = dynamic_cast<const stream::StreamWork*>(work.get())) {
      last_ = one->operation();
      lastWasVendor_ = vendor;
    }
  }
  return work;
}

}  // namespace torch::comms
