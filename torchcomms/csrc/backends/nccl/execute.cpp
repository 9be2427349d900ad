#include "torchcomms/csrc/backends/nccl/execute.hpp"

#include "torchcomms/csrc/backends/stream/operation.hpp"

namespace torch::comms {

namespace {

/// The work of an operation that belongs to a graph: it ends whenever the graph has run, so there
/// is nothing to wait for.
using CapturedWork = TorchWorkCompleted;

}  // namespace

void nccl::scale(const at::Tensor& tensor, const ReduceOp& op) {
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  if (const at::Tensor* factor = std::get_if<at::Tensor>(&op.factor())) {
    tensor.mul_(factor->to(tensor.device(), c10::toRealValueType(tensor.scalar_type()))
                    .reshape(at::IntArrayRef()));
  } else {
    tensor.mul_(op.factorAsDouble());
  }
}

void NcclBackend::Call::send(const void* from, size_t bytes, int peer) const {
  check(library.send(from, bytes, nccl::kBytes, peer, comm, stream), "ncclSend");
}

void NcclBackend::Call::recv(void* to, size_t bytes, int peer) const {
  check(library.recv(to, bytes, nccl::kBytes, peer, comm, stream), "ncclRecv");
}

TorchCommBackend::WorkPtr NcclBackend::run(OpName op, Form form, bool async_op,
                                           const OpOptions& options,
                                           const std::function<void(const Call&)>& calls,
                                           const std::function<void(nccl::Stream)>& after,
                                           const std::function<std::shared_ptr<void>()>& hold) {
  nccl::Group& group = *group_;
  const ctran::gpu::Runtime& runtime = group.runtime();
  group.requireWhole();
  const std::chrono::milliseconds timeout =
      options.timeout == kNoTimeout ? options_.timeout : options.timeout;
  const ctran::gpu::ActiveDevice active(runtime, device_.has_index() ? device_.index() : 0);
  const nccl::Stream current = group.currentStream();
  const bool capturing = runtime.isCapturing(current);
  nccl::Stream stream = current;
  if (async_op && !capturing) {
    stream = group.ownStream();
    const ctran::gpu::PooledEvent ready(group.events());
    runtime.check(runtime.eventRecord(ready.get(), current), "recording an event");
    runtime.check(runtime.streamWaitEvent(stream, ready.get(), 0), "making a stream wait");
  }
  std::shared_ptr<nccl::Replays::Captured> captured;
  if (capturing) {
    if (group.setup().hints.watchReplays) captured = group.replays().enter(stream);
    // The group, which goes last, is kept too: `captured` belongs to it.
    group.keepWithGraph(
        stream,
        std::make_shared<std::pair<std::shared_ptr<void>, decltype(captured)>>(hold(), captured));
  }
  if (form != Form::None) {
    group.issue(op, form == Form::Grouped, timeout, [&](nccl::Comm comm) {
      calls(Call{group, group.library(), comm, stream});
    });
  }
  after(stream);
  // What ranks do alone is not counted: the number says where they are in what they do together.
  const uint64_t sequence = form == Form::None ? group.issued() : group.nextSequence();
  if (capturing) {
    if (captured) group.replays().leave(*captured, stream, op, sequence, timeout);
    return CapturedWork::shared();
  }
  ctran::gpu::PooledEvent end(group.events());
  runtime.check(runtime.eventRecord(end.get(), stream), "recording an event");
  // Torch's allocator keeps the order of the current stream; of ours nobody else knows.
  const bool isOrdered = !device_.is_cpu();
  auto operation = std::make_shared<stream::Operation>(
      op, group_, sequence, timeout, std::move(end), stream,
      isOrdered ? std::optional(current) : std::nullopt, async_op || !isOrdered ? hold() : nullptr);
  group.watch(stream, operation);
  return c10::make_intrusive<stream::StreamWork>(std::move(operation));
}

}  // namespace torch::comms
