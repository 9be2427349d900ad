#include "torchcomms/csrc/backends/nccl/execute.hpp"

#include "torchcomms/csrc/backends/nccl/hints.hpp"
#include "torchcomms/csrc/backends/stream/work.hpp"
#include "torchcomms/csrc/current_stream.hpp"

namespace torch::comms {

void nccl::scale(const at::Tensor& tensor, const ReduceOp& op) {
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  if (const at::Tensor* factor = std::get_if<at::Tensor>(&op.factor())) {
    tensor.mul_(factor->to(tensor.device(), c10::toRealValueType(tensor.scalar_type()))
                    .reshape(at::IntArrayRef()));
  } else {
    tensor.mul_(op.factorAsDouble());
  }
}

void NcclBackend::Issue::send(const void* from, size_t bytes, int peer) const {
  check(library.send(from, bytes, nccl::kBytes, peer, comm, stream), "ncclSend");
}

void NcclBackend::Issue::recv(void* to, size_t bytes, int peer) const {
  check(library.recv(to, bytes, nccl::kBytes, peer, comm, stream), "ncclRecv");
}

TorchCommBackend::WorkPtr NcclBackend::run(OpName op, Form form, bool async_op,
                                           const OpOptions& options,
                                           const std::function<void(const Issue&)>& calls,
                                           const std::function<void(nccl::Stream)>& after,
                                           const std::function<std::shared_ptr<void>()>& hold) {
  nccl::Group& group = this->group();
  const ctran::EnqueueOptions enqueued{.name = toString(op),
                                       .timeout = timeoutOf(options),
                                       .aside = async_op,
                                       .highPriority = nccl::wantsHighPriority(options.hints),
                                       .keepAlive = hold};
  auto operation = enqueue(
      enqueued, stream::currentStream(device_), /*together=*/true, [&](nccl::Stream stream) {
        group.issue(op, form == Form::Grouped, enqueued.timeout, [&](nccl::Comm comm) {
          calls(Issue{group, group.library(), comm, stream});
        });
        after(stream);
      });
  return stream::workOf(std::move(operation), device_);
}

std::shared_ptr<ctran::StreamOperation> NcclBackend::enqueue(
    const ctran::EnqueueOptions& options, nccl::Stream current, bool together,
    const std::function<void(nccl::Stream)>& put) {
  nccl::Group& group = this->group();
  group.throwIfBroken();
  const ctran::gpu::ActiveDevice active(group.runtime(), group.device());
  const auto place = group.place(current, options.aside, options.highPriority);
  std::shared_ptr<nccl::Replays::Captured> captured;
  if (place.isCaptured) {
    if (group.setup().hints.watchReplays) captured = group.replays().enter(place.stream);
    // The group, which goes last, is kept too: `captured` belongs to it.
    group.keepWithGraph(place.stream,
                        std::make_shared<std::pair<std::shared_ptr<void>, decltype(captured)>>(
                            options.keepAlive(), captured));
  }
  put(place.stream);
  // What ranks do alone is not counted: the number says where they are in what they do together.
  const uint64_t sequence = together ? group.nextSequence() : group.issued();
  if (place.isCaptured) {
    // It ends whenever a replay of its graph does, so there is nothing to wait for.
    if (captured) {
      group.replays().leave(*captured, place.stream, options.name, sequence, options.timeout);
    }
    return nullptr;
  }
  return group.track(place,
                     {.name = options.name, .sequence = sequence, .timeout = options.timeout},
                     options.keepAlive);
}

}  // namespace torch::comms
