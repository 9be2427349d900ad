#include "torchcomms/csrc/c10d/staging.hpp"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

namespace torch::comms {

at::Tensor contiguousInput(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return tensor;
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  return tensor.contiguous();
}

std::vector<at::Tensor> contiguousInputs(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> inputs;
  inputs.reserve(tensors.size());
  for (const at::Tensor& t : tensors) inputs.push_back(contiguousInput(t));
  return inputs;
}

StagedOutputs::StagedOutputs(const std::vector<at::Tensor>& tensors, bool read)
    : tensors_(tensors), staged_(tensors) {
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  for (at::Tensor& t : staged_) {
    if (t.is_contiguous()) continue;
    t = read ? t.contiguous() : at::empty_like(t, at::MemoryFormat::Contiguous);
    needed_ = true;
  }
}

void StagedOutputs::copyBack() const {
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!staged_[i].is_same(tensors_[i])) const_cast<at::Tensor&>(tensors_[i]).copy_(staged_[i]);
  }
}

}  // namespace torch::comms
