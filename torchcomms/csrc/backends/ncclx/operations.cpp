// Which member an operation of NcclxBackend is of, and in which order they run.

#include <ATen/ATen.h>

#include "ctran/base/error.h"
#include "ctran/trace/served.h"
#include "torchcomms/csrc/backends/ctran/rows.hpp"
#include "torchcomms/csrc/backends/ncclx/backend.hpp"
#include "torchcomms/csrc/current_stream.hpp"

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
  std::shared_ptr<const ctran::CallHints> hints;
  if (!call.options.hints.empty()) {
    if (engine_) {
      hints = engine_->hintsOf(call.options);
    } else if (ctran::callHints({call.options.hints.begin(), call.options.hints.end()}, false)) {
      requireEngine(call.op);
    }
  }
  if (!engine_) return true;
  if (call.prepared) return false;
  const auto faster = [&](Kind kind, const at::Tensor& tensor) {
    return choice_->takesVendor(kind, tensor.nbytes(),
                                !call.reduceOp || canReduce(tensor, *call.reduceOp), hints.get());
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
  if (engine_ && vendor_) {
    engine_->gpu()->throwIfBroken();
    vendor_->group().throwIfBroken();
    if (lastWasVendor_ != vendor) followOther(call, vendor);
  }
  if (!vendor) {
    ctran::Served::say("ctran", "NCCL does not serve it, or not as fast");
    return engine_->issue(call);  // which knows its algorithm
  }
  ctran::Served::say("nccl", choice_->whyVendor());
  return vendor_->issue(call);
}

/// Orders a call of a member behind those of the other one, whatever their streams.
void NcclxBackend::followOther(const Call& call, bool vendor) {
  ctran::StreamQueue& engines = *engine_->gpu();
  ctran::StreamQueue& vendors = vendor_->group();
  ctran::StreamQueue& own = vendor ? vendors : engines;
  const ctran::gpu::Stream current = stream::currentStream(getDevice());
  if (own.runtime().isCapturing(current)) return;  // in a graph all is on one stream
  const ctran::gpu::ActiveDevice active(own.runtime(), own.device());
  // What goes through the host's memory is copied by the current stream.
  const bool aside = call.async && !(call.rows && HostRows::areFor(*call.rows));
  (vendor ? engines : vendors).orderAllBefore(aside ? own.ownStream() : current);
  lastWasVendor_ = vendor;
}

}  // namespace torch::comms
