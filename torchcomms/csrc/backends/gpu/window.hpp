#pragma once

#include <comms/torchcomms/TorchCommWindow.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "ctran/window/gpu_window.h"
#include "torchcomms/csrc/backends/gpu/device_window.hpp"

namespace torch::comms::gpu {

/// A window of the engine on GPUs, for torch: its operations go behind what the current stream
/// holds.
class GpuWindow final : public TorchCommWindow {
 public:
  GpuWindow(int rank, int size, at::Device device, std::unique_ptr<ctran::GpuWindowHost> host);
  ~GpuWindow() override;

 protected:
  void open(const at::Tensor& memory, int64_t signals) override;
  void close() override;
  at::Tensor newMemory(int64_t bytes) override;
  int64_t bytesOf(int rank) const override { return static_cast<int64_t>(window_.bytes(rank)); }
  int64_t signalsOf(int rank) const override {
    return static_cast<int64_t>(window_.signalWords(rank));
  }
  TorchCommWinAccessType accessOf(int /*rank*/) const override {
    return TorchCommWinAccessType::WIN_ACCESS_TYPE_UNIFIED;
  }
  std::shared_ptr<void> mapped(int rank) const override { return window_.mapped(rank); }
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
  uint64_t deviceWindow(uint64_t signals, uint64_t counters, uint64_t barriers) override;
  uint64_t addBuffer(const at::Tensor& tensor) override;
  void removeBuffer(uint64_t handle) override;
  uint64_t deviceAddress(int rank) const override {
    return reinterpret_cast<uint64_t>(window_.mapped(rank).get());
  }

 private:
  /// Memory for puts of kernels: what they get, and the tensor.
  struct Buffer {
    std::shared_ptr<void> handle;
    at::Tensor tensor;
  };

  /// Calls `start(stream, options)`; what it puts on the stream holds `tensor`.
  template <typename Start>
  WorkPtr enqueue(OpName op, bool async_op, const OpOptions& options, const Start& start,
                  const at::Tensor& tensor = {});

  ctran::GpuWindow window_;
  std::optional<DeviceWindow> device_;
  std::vector<Buffer> buffers_;
};

}  // namespace torch::comms::gpu
