#include "torchcomms/csrc/backends/ctran/gpu_group.hpp"

#include "torchcomms/csrc/backends/ctran/work.hpp"
#include "torchcomms/csrc/backends/stream/operation.hpp"

namespace torch::comms {

namespace {

bool isMessage(ctran::CollectiveKind kind) {
  return kind == ctran::CollectiveKind::Send || kind == ctran::CollectiveKind::Recv;
}

}  // namespace

GpuGroup::GpuGroup(stream::StreamSetup setup, std::shared_ptr<ctran::GpuCommunicator> engine)
    : StreamGroup(std::move(setup)), engine_(std::move(engine)) {}

TorchCommBackend::WorkPtr GpuGroup::issue(OpName op, std::span<const ctran::Collective> operations,
                                          bool async_op, std::chrono::milliseconds timeout,
                                          const std::function<std::shared_ptr<void>()>& hold) {
  requireWhole();
  if (engine_->hasFailed()) [[unlikely]] {
    diagnose();
    requireWhole();
  }
  const ctran::gpu::ActiveDevice active(runtime(), deviceIndex());
  const stream::Stream current = currentStream();
  const bool capturing = runtime().isCapturing(current);
  stream::Stream stream = current;
  if (async_op && !capturing) {
    stream = ownStream();
    const ctran::gpu::PooledEvent ready(events());
    runtime().check(runtime().eventRecord(ready.get(), current), "recording an event");
    runtime().check(runtime().streamWaitEvent(stream, ready.get(), 0), "making a stream wait");
  }
  uint64_t number = 0;
  if (operations.empty() || isMessage(operations[0].kind)) {
    engine_->enqueueMessages(operations, stream);
  } else {
    EngineWaitHooks hooks;
    try {
      number = engine_->enqueue(operations[0], stream, &hooks);
    } catch (const ctran::Error&) {
      if (engine_->hasFailed()) {  // while it waited for the other ranks
        monitor().seen();
        diagnose();
      }
      throw;
    }
  }
  if (capturing) {
    keepWithGraph(stream, hold());
    return TorchWorkCompleted::shared();
  }
  ctran::gpu::PooledEvent end(events());
  runtime().check(runtime().eventRecord(end.get(), stream), "recording an event");
  // Torch's allocator keeps the order of the current stream; of ours nobody else knows.
  const bool isOrdered = !device().is_cpu();
  auto operation = std::make_shared<stream::Operation>(
      op, shared_from_this(), number, timeout, std::move(end), stream,
      isOrdered ? std::optional(current) : std::nullopt, async_op || !isOrdered ? hold() : nullptr);
  watch(stream, operation);
  return c10::make_intrusive<stream::StreamWork>(std::move(operation));
}

void GpuGroup::diagnose() {
  if (const auto error = engine_->trouble()) breakWith(*error, /*announce=*/false);
}

bool GpuGroup::patrol() {
  try {
    retireEnded();
    if (!isBroken()) diagnose();
    if (!isBroken()) lookAtDeadlines();
  } catch (const ctran::Error& error) {
    breakWith(error);
  } catch (const std::exception& error) {
    breakWith(ctran::Error(ctran::ErrorKind::System, error.what()));
  }
  // Graphs may be replayed at any time, and nobody else sees when that goes wrong.
  return isIdle() && (!isKept() || isBroken());
}

void GpuGroup::lookAtDeadlines() {
  const auto late = findLate(stream::Clock::now());
  if (!late) return;
  const ctran::Error error =
      engine_->timedOut(describe(late->op(), *this), late->sequence(), late->timeout());
  breakWith(ctran::Error(error.kind(), error.what(), error.ranks(),
                         std::string(toString(late->op())), ""));
}

void GpuGroup::endKernels() {
  const std::lock_guard lock(errorMutex_);
  engine_->fail(*error_);
}

}  // namespace torch::comms
