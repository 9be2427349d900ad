#include "torchcomms/csrc/c10d/staging.hpp"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <utility>

namespace torch::comms {

namespace {

bool shareMemory(const std::vector<at::Tensor>& tensors) {
  if (tensors.size() < 2) return false;
  std::vector<std::pair<const char*, const char*>> ranges;
  ranges.reserve(tensors.size());
  for (const at::Tensor& t : tensors) {
    if (t.numel() == 0) continue;
    const auto* first = static_cast<const char*>(t.const_data_ptr());
    const auto* storage = static_cast<const char*>(t.storage().data());
    ranges.emplace_back(first,
                        t.is_contiguous() ? first + t.nbytes() : storage + t.storage().nbytes());
  }
  std::sort(ranges.begin(), ranges.end());
  return std::adjacent_find(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) {
           return b.first < a.second;
         }) != ranges.end();
}

}  // namespace

at::Tensor contiguousInput(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return tensor;
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  return tensor.contiguous();
}

StagedOutputs::StagedOutputs(const std::vector<at::Tensor>& tensors, bool read)
    : tensors_(tensors), staged_(tensors) {
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  const bool all = shareMemory(tensors);
  for (at::Tensor& t : staged_) {
    if (t.is_contiguous() && !all) continue;
    at::assert_no_internal_overlap(t);
    t = read ? t.clone(at::MemoryFormat::Contiguous)
             : at::empty_like(t, at::MemoryFormat::Contiguous);
    needed_ = true;
  }
}

bool StagedOutputs::include(const at::Tensor& tensor) const {
  return std::any_of(tensors_.begin(), tensors_.end(),
                     [&](const at::Tensor& t) { return t.is_alias_of(tensor); });
}

void StagedOutputs::copyBack() const {
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!staged_[i].is_same(tensors_[i])) const_cast<at::Tensor&>(tensors_[i]).copy_(staged_[i]);
  }
}

}  // namespace torch::comms
