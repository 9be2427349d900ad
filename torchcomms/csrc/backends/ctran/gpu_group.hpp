#pragma once

#include <comms/torchcomms/TorchCommBackend.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ctran/engine/gpu_communicator.h"
#include "ctran/stream/replays.h"
#include "ctran/stream/stream_queue.h"

namespace torch::comms {

/// The engine's communicator of GPUs, its operations as work on streams.
class GpuGroup final : public ctran::StreamQueue {
 public:
  GpuGroup(ctran::StreamQueueOptions options, at::Device device,
           std::shared_ptr<ctran::GpuCommunicator> engine);

  ctran::GpuCommunicator& engine() { return *engine_; }

  /// Puts an operation on the current stream or, with `async_op`, on the communicator's, behind
  /// what the current one holds; while that captures, always on it. `operations` is one collective,
  /// or sends and receives. `hold` makes what the work, or the graph, keeps.
  TorchCommBackend::WorkPtr issue(OpName op, std::span<const ctran::Collective> operations,
                                  bool async_op, std::chrono::milliseconds timeout,
                                  const std::function<std::shared_ptr<void>()>& hold);

  /// The same of what `enqueue(stream)` puts there; it returns the operation's number, 0 if that is
  /// beside the engine. `awaited`: the ranks without which it does not end, where they are known.
  TorchCommBackend::WorkPtr issue(OpName op, bool async_op, std::chrono::milliseconds timeout,
                                  const std::function<std::shared_ptr<void>()>& hold,
                                  const std::function<uint64_t(ctran::gpu::Stream)>& enqueue,
                                  std::vector<int> awaited = {});

  bool inspect() override;
  bool isSound() const override { return !engine_->hasFailed(); }
  void diagnose() override;

 private:
  void endKernels() override;
  void lookAtDeadlines();
  void lookForLeft();
  void lookAtReplays();
  std::optional<std::string_view> replayed() override;
  [[nodiscard]] ctran::Error lateSignal(const std::string& what, std::chrono::milliseconds timeout,
                                        std::vector<int> ranks) const;

  const std::shared_ptr<ctran::GpuCommunicator> engine_;
  const at::Device torchDevice_;
  ctran::Replays replays_;  ///< of what waits beside the engine, whose kernels end by themselves
};

}  // namespace torch::comms
