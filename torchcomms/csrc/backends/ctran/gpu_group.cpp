#include "torchcomms/csrc/backends/ctran/gpu_group.hpp"

#include "ctran/base/rank_list.h"
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

template <typename Put>
TorchCommBackend::WorkPtr GpuGroup::place(OpName op, bool async_op,
                                          std::chrono::milliseconds timeout, const Put& put,
                                          const std::function<std::shared_ptr<void>()>& hold,
                                          std::vector<int> awaited) {
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
  const uint64_t number = put(stream);
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
  if (!awaited.empty()) operation->setAwaited(std::move(awaited));
  watch(stream, operation);
  return c10::make_intrusive<stream::StreamWork>(std::move(operation));
}

TorchCommBackend::WorkPtr GpuGroup::issue(OpName op, std::span<const ctran::Collective> operations,
                                          bool async_op, std::chrono::milliseconds timeout,
                                          const std::function<std::shared_ptr<void>()>& hold) {
  const auto put = [&](stream::Stream stream) -> uint64_t {
    if (operations.empty() || isMessage(operations[0].kind)) {
      engine_->enqueueMessages(operations, stream);
      return 0;
    }
    EngineWaitHooks hooks;
    try {
      return engine_->enqueue(operations[0], stream, &hooks);
    } catch (const ctran::Error&) {
      if (engine_->hasFailed()) {  // while it waited for the other ranks
        monitor().seen();
        diagnose();
      }
      throw;
    }
  };
  return place(op, async_op, timeout, put, hold, {});
}

TorchCommBackend::WorkPtr GpuGroup::issueBeside(OpName op, bool async_op,
                                                std::chrono::milliseconds timeout,
                                                const std::function<void(stream::Stream)>& put,
                                                std::shared_ptr<void> hold,
                                                std::vector<int> awaited) {
  const auto beside = [&](stream::Stream stream) -> uint64_t {
    put(stream);
    return 0;
  };
  return place(
      op, async_op, timeout, beside, [&] { return hold; }, std::move(awaited));
}

void GpuGroup::diagnose() {
  if (const auto error = engine_->trouble()) breakWith(*error, /*announce=*/false);
}

bool GpuGroup::patrol() {
  try {
    retireEnded();
    if (!isBroken()) diagnose();
    if (!isBroken()) lookAtDeadlines();
    engine_->shareMemory();
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
  const std::string name(toString(late->op()));
  if (!late->awaited().empty()) {
    return breakWith(ctran::Error(ctran::ErrorKind::Timeout,
                                  describe(late->op(), *this) + " has not ended within " +
                                      std::to_string(late->timeout().count()) +
                                      " ms: it waited for rank " + ctran::listed(late->awaited()),
                                  late->awaited(), name,
                                  "does every signal that is waited for get sent?"));
  }
  const ctran::Error error =
      engine_->timedOut(describe(late->op(), *this), late->sequence(), late->timeout());
  breakWith(ctran::Error(error.kind(), error.what(), error.ranks(), name, ""));
}

void GpuGroup::endKernels() {
  {
    const std::lock_guard lock(errorMutex_);
    engine_->fail(*error_);
  }
  releaseAll();
}

}  // namespace torch::comms
