#include "torchcomms/csrc/backends/ctran/gpu_group.hpp"

#include "ctran/base/rank_list.h"
#include "torchcomms/csrc/backends/ctran/work.hpp"
#include "torchcomms/csrc/backends/stream/current_stream.hpp"
#include "torchcomms/csrc/backends/stream/work.hpp"

namespace torch::comms {

namespace {

/// An operation that has gone on for so long does not end by itself if a rank has left without it.
constexpr std::chrono::seconds kLeftPatience{1};

/// Ranks as bits, and back: there are at most eight.
uint64_t maskOf(const std::vector<int>& ranks) {
  uint64_t mask = 0;
  for (const int rank : ranks) mask |= uint64_t{1} << rank;
  return mask;
}

std::vector<int> ranksOf(uint64_t mask) {
  std::vector<int> ranks;
  for (int rank = 0; mask != 0; ++rank, mask >>= 1) {
    if (mask & 1) ranks.push_back(rank);
  }
  return ranks;
}

bool isMessage(ctran::CollectiveKind kind) {
  return kind == ctran::CollectiveKind::Send || kind == ctran::CollectiveKind::Recv;
}

}  // namespace

GpuGroup::GpuGroup(ctran::StreamQueueOptions options, at::Device device,
                   std::shared_ptr<ctran::GpuCommunicator> engine)
    : StreamQueue(std::move(options)),
      engine_(std::move(engine)),
      torchDevice_(device),
      replays_(runtime(), events()) {}

TorchCommBackend::WorkPtr GpuGroup::issue(OpName op, std::span<const ctran::Collective> operations,
                                          bool async_op, std::chrono::milliseconds timeout,
                                          const std::function<std::shared_ptr<void>()>& hold) {
  return issue(op, async_op, timeout, hold, [&](ctran::gpu::Stream stream) -> uint64_t {
    if (operations.empty() || isMessage(operations[0].kind)) {
      engine_->enqueueMessages(operations, {stream, async_op, timeout});
      return 0;
    }
    EngineWaitHooks hooks;
    return engine_->enqueue(operations[0], {stream, async_op, timeout}, &hooks);
  });
}

TorchCommBackend::WorkPtr GpuGroup::issue(
    OpName op, bool async_op, std::chrono::milliseconds timeout,
    const std::function<std::shared_ptr<void>()>& hold,
    const std::function<uint64_t(ctran::gpu::Stream)>& enqueue, std::vector<int> awaited) {
  throwIfBroken();
  if (engine_->hasFailed()) [[unlikely]] {
    diagnose();
    throwIfBroken();
  }
  const ctran::gpu::ActiveDevice active(runtime(), device());
  const Placement where = place(stream::currentStream(torchDevice_), async_op);
  const auto captured =
      where.isCaptured && !awaited.empty() ? replays_.enter(where.stream) : nullptr;
  uint64_t number = 0;
  try {
    number = enqueue(where.stream);
  } catch (const ctran::Error&) {
    if (engine_->hasFailed()) {  // while it waited for the other ranks
      observer().seen();
      diagnose();
    }
    throw;
  }
  if (where.isCaptured) {
    if (captured) replays_.leave(*captured, where.stream, toString(op), maskOf(awaited), timeout);
    // The group, which goes last, is kept too: `captured` belongs to it.
    keepWithGraph(where.stream,
                  captured ? std::make_shared<std::pair<std::shared_ptr<void>, decltype(captured)>>(
                                 hold(), captured)
                           : hold());
    return TorchWorkCompleted::shared();
  }
  return stream::workOf(track(where,
                              {.name = toString(op),
                               .sequence = number,
                               .timeout = timeout,
                               .awaited = std::move(awaited)},
                              hold),
                        torchDevice_);
}

void GpuGroup::diagnose() {
  if (const auto error = engine_->trouble()) breakWith(*error, /*tellOthers=*/false);
}

bool GpuGroup::inspect() {
  try {
    retireEnded();
    if (!isBroken()) diagnose();
    if (!isBroken()) lookAtDeadlines();
    if (!isBroken()) lookForLeft();
    if (!isBroken() && hasGraphs()) lookAtReplays();
    engine_->shareMemory();
  } catch (const ctran::Error& error) {
    breakWith(error);
  } catch (const std::exception& error) {
    breakWith(ctran::Error(ctran::ErrorKind::System, error.what()));
  }
  // Graphs may be replayed at any time, and nobody else sees when that goes wrong.
  return isIdle() && (!hasGraphs() || isBroken());
}

void GpuGroup::lookAtDeadlines() {
  const auto late = findLate(Clock::now());
  if (!late) return;
  const std::string name(late->name());
  if (!late->awaited().empty()) {
    return breakWith(lateSignal(describe(late->name()), late->timeout(), late->awaited()));
  }
  const ctran::Error error =
      engine_->timedOut(describe(late->name()), late->sequence(), late->timeout());
  breakWith(ctran::Error(error.kind(), error.what(), error.ranks(), name, ""));
}

/// Of messages it is not known who has sent what before it left: they have their timeouts.
void GpuGroup::lookForLeft() {
  const auto now = Clock::now();
  std::shared_ptr<ctran::StreamOperation> latest;
  {
    const std::lock_guard lock(streamsMutex_);
    for (const OneStream& one : streams_) {
      for (const auto& operation : one.operations) {
        if (now - operation->start() < kLeftPatience) break;
        if (!latest || operation->sequence() > latest->sequence()) latest = operation;
      }
    }
  }
  if (!latest || latest->sequence() == 0) return;
  const auto error = engine_->leftWithout(latest->sequence());
  if (!error || latest->isOver()) return;
  breakWith(
      ctran::Error(error->kind(), error->what(), error->ranks(), std::string(latest->name()), ""));
}

void GpuGroup::lookAtReplays() {
  const auto now = Clock::now();
  const auto running = replays_.mostUrgent(now);
  if (!running || running->deadline() > now) return;
  breakWith(lateSignal(describe(running->name) + ", in a replay of its graph,", running->timeout,
                       ranksOf(running->sequence)));
}

std::optional<std::string_view> GpuGroup::replayed() {
  try {
    const auto running = replays_.mostUrgent(Clock::now());
    return running ? std::optional(running->name) : std::nullopt;
  } catch (const ctran::Error&) {  // the device is lost
    return std::nullopt;
  }
}

ctran::Error GpuGroup::lateSignal(const std::string& what, std::chrono::milliseconds timeout,
                                  std::vector<int> ranks) const {
  const std::string whom = ctran::listed(ranks);
  return {ctran::ErrorKind::Timeout,
          what + " has not ended within " + std::to_string(timeout.count()) +
              " ms: it waited for rank " + whom,
          std::move(ranks), std::string(toString(OpName::wait_signal)),
          "does every signal that is waited for get sent?"};
}

void GpuGroup::endKernels() {
  {
    const std::lock_guard lock(errorMutex_);
    engine_->fail(*error_);
  }
  callOnBreak();
}

}  // namespace torch::comms
