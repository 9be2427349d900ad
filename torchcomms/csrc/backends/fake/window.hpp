#pragma once

#include <ATen/core/Tensor.h>

#include <comms/torchcomms/TorchCommWindow.hpp>
#include <functional>
#include <memory>
#include <utility>

namespace torch::comms {

/// A window in which every rank's memory is this rank's. Operations succeed at once and touch
/// nothing.
class FakeWindow final : public TorchCommWindow {
 public:
  /// `done` is what every operation returns, or throws.
  FakeWindow(int rank, int size, at::Device device, std::function<WorkPtr()> done)
      : TorchCommWindow(rank, size, device), device_(device), done_(std::move(done)) {}

 protected:
  void open(const at::Tensor& memory, int64_t signals) override;
  void close() override;
  at::Tensor newMemory(int64_t bytes) override;
  int64_t bytesOf(int /*rank*/) const override { return memory_.numel(); }
  int64_t signalsOf(int /*rank*/) const override { return signals_; }
  std::optional<at::ScalarType> typeOf(int /*rank*/) const override { return exposedType(); }
  TorchCommWinAccessType accessOf(int /*rank*/) const override {
    return TorchCommWinAccessType::WIN_ACCESS_TYPE_UNIFIED;
  }
  std::shared_ptr<void> mapped(int rank) const override;
  WorkPtr putBytes(const at::Tensor&, int, int64_t, bool, const OpOptions&) override {
    return done_();
  }
  WorkPtr getBytes(at::Tensor&, int, int64_t, bool, const OpOptions&) override { return done_(); }
  WorkPtr flushPuts(int, bool, const OpOptions&) override { return done_(); }
  WorkPtr addSignal(int, bool, const OpOptions&) override { return done_(); }
  WorkPtr awaitSignal(int, bool, const OpOptions&) override { return done_(); }
  WorkPtr setSignal(int64_t, uint64_t, int, bool, const OpOptions&) override { return done_(); }
  WorkPtr compareSignal(int64_t, uint64_t, SignalCmpOp, bool, const OpOptions&) override {
    return done_();
  }

 private:
  const at::Device device_;
  const std::function<WorkPtr()> done_;
  at::Tensor memory_;
  int64_t signals_ = 0;
};

}  // namespace torch::comms
