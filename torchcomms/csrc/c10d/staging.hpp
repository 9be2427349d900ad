#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch::comms {

/// As communicators take it: a copy if it is not contiguous.
at::Tensor contiguousInput(const at::Tensor& tensor);

/// Tensors that an operation writes: those that are not contiguous are replaced, and get the result
/// when the operation has ended. So are all of a list in which some share memory: there the last
/// one's result stays.
class StagedOutputs {
 public:
  /// `read`: the operation reads them too. Throws c10::Error for a tensor of which elements share
  /// memory.
  explicit StagedOutputs(const std::vector<at::Tensor>& tensors, bool read = false);

  std::vector<at::Tensor>& tensors() { return staged_; }
  bool needed() const { return needed_; }
  /// Whether a tensor is in the memory of one of them.
  bool include(const at::Tensor& tensor) const;
  void copyBack() const;

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> staged_;
  bool needed_ = false;
};

}  // namespace torch::comms
