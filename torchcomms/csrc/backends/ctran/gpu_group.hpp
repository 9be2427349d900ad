#pragma once

#include <comms/torchcomms/TorchCommBackend.hpp>
#include <functional>
#include <memory>
#include <span>

#include "ctran/engine/gpu_communicator.h"
#include "torchcomms/csrc/backends/stream/group.hpp"

namespace torch::comms {

/// The engine's communicator of GPUs, its operations as work on streams.
class GpuGroup final : public stream::StreamGroup {
 public:
  GpuGroup(stream::StreamSetup setup, std::shared_ptr<ctran::GpuCommunicator> engine);

  ctran::GpuCommunicator& engine() { return *engine_; }

  /// Puts an operation on the current stream or, with `async_op`, on the communicator's, behind
  /// what the current one holds; while that captures, always on it. `operations` is one collective,
  /// or sends and receives. `hold` makes what the work, or the graph, keeps.
  TorchCommBackend::WorkPtr issue(OpName op, std::span<const ctran::Collective> operations,
                                  bool async_op, std::chrono::milliseconds timeout,
                                  const std::function<std::shared_ptr<void>()>& hold);

  /// The same of what `enqueue(stream)` puts there; it returns the operation's number.
  TorchCommBackend::WorkPtr issue(OpName op, bool async_op, std::chrono::milliseconds timeout,
                                  const std::function<std::shared_ptr<void>()>& hold,
                                  const std::function<uint64_t(stream::Stream)>& enqueue);

  bool patrol() override;
  bool isSound() const override { return !engine_->hasFailed(); }
  void diagnose() override;

 private:
  void endKernels() override;
  void lookAtDeadlines();

  const std::shared_ptr<ctran::GpuCommunicator> engine_;
};

}  // namespace torch::comms
