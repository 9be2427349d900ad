#pragma once

#include <comms/torchcomms/TorchCommTypes.hpp>
#include <comms/torchcomms/TorchCommWindow.hpp>
#include <memory>

#include "ctran/engine/communicator.h"
#include "ctran/window/window.h"
#include "torchcomms/csrc/error_monitor.hpp"

namespace torch::comms {

/// A window of the project's own engine.
class CtranWindow final : public TorchCommWindow {
 public:
  CtranWindow(std::shared_ptr<ctran::Communicator> comm, std::shared_ptr<ErrorMonitor> monitor,
              at::Device device);
  ~CtranWindow() override;

 protected:
  void moveToShared(const at::Tensor& tensor) override;
  void open(const at::Tensor& memory, int64_t signals) override;
  void close() override;
  at::Tensor newMemory(int64_t bytes) override;
  int64_t bytesOf(int rank) const override;
  int64_t signalsOf(int rank) const override;
  std::optional<at::ScalarType> typeOf(int rank) const override;
  TorchCommWinAccessType accessOf(int rank) const override;
  std::shared_ptr<void> mapped(int rank) const override;
  WorkPtr putBytes(const at::Tensor& source, int dst, int64_t offset, bool async_op,
                   const OpOptions& options) override;
  WorkPtr getBytes(at::Tensor& destination, int src, int64_t offset, bool async_op,
                   const OpOptions& options) override;
  WorkPtr flushPuts(int dst, bool async_op, const OpOptions& options) override;
  WorkPtr addSignal(int dst, bool async_op, const OpOptions& options) override;
  WorkPtr awaitSignal(int src, bool async_op, const OpOptions& options) override;
  WorkPtr setSignal(int64_t index, uint64_t value, int dst, bool async_op,
                    const OpOptions& options) override;
  WorkPtr compareSignal(int64_t index, uint64_t value, SignalCmpOp op, bool async_op,
                        const OpOptions& options) override;

 private:
  /// Runs what the engine starts: waits for it, or returns its work.
  template <typename Call>
  WorkPtr visibly(OpName op, bool async_op, Call call);

  const std::shared_ptr<ctran::Communicator> comm_;
  const std::shared_ptr<ErrorMonitor> monitor_;
  std::unique_ptr<ctran::Window> window_;
};

ctran::Comparison engineComparison(SignalCmpOp op);

/// Allocates a tensor of bytes in memory that the other ranks of the host can map.
at::Tensor sharedBytes(int64_t bytes);

}  // namespace torch::comms
