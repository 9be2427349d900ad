#include "torchcomms/csrc/backends/fake/window.hpp"

#include <ATen/ATen.h>

namespace torch::comms {

void FakeWindow::open(const at::Tensor& memory, int64_t signals) {
  done_();
  memory_ = memory;
  signals_ = signals;
}

void FakeWindow::close() { memory_.reset(); }

at::Tensor FakeWindow::newMemory(int64_t bytes) {
  return at::zeros({bytes}, at::TensorOptions(device_).dtype(at::kByte));
}

std::shared_ptr<void> FakeWindow::mapped(int /*rank*/) const {
  // Holds the tensor, too, where the window holds it.
  return {std::make_shared<std::optional<at::Tensor>>(get_tensor()), memory_.data_ptr()};
}

}  // namespace torch::comms
