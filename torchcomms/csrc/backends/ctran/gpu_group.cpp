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
  return issue(op, async_op, timeout, hold, [&](stream::Stream stream) -> uint64_t {
    if (operations.empty() || isMessage(operations[0].kind)) {
      engine_->enqueueMessages(operations, stream);
      return 0;
    }
    EngineWaitHooks hooks;
    return engine_->enqueue(operations[0], stream, &hooks);
  });
}

TorchCommBackend::WorkPtr GpuGroup::issue(OpName op, bool async_op,
                                          std::chrono::milliseconds timeout,
                                          const std::function<std::shared_ptr<void>()>& hold,
                                          const std::function<uint64_t(stream::Stream)>& enqueue) {
  requireWhole();
  if (engine_->hasFailed()) [[unlikely]] {
    diagnose();
    requireWhole();
  }
  const ctran::gpu::ActiveDevice active(runtime(), deviceIndex());
  const stream::Place where = place(async_op);
  uint64_t number = 0;
  try {
    number = enqueue(where.stream);
  } catch (const ctran::Error&) {
    if (engine_->hasFailed()) {  // while it waited for the other ranks
      monitor().seen();
      diagnose();
    }
    throw;
  }
  if (where.isCaptured) {
    keepWithGraph(where.stream, hold());
    return TorchWorkCompleted::shared();
  }
  return finish(op, where, number, timeout, hold);
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
