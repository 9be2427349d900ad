#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <comms/torchcomms/TorchCommTypes.hpp>
#include <cstddef>

#include "torchcomms/csrc/backends/nccl/library.hpp"

namespace torch::comms::nccl {

/// How the library does a reduction of torch: on elements of `type`, `perElement` for each element
/// of the tensor, with `op`.
struct Element {
  DataType type;
  size_t perElement = 1;
  RedOp op = kSum;  ///< not used for PREMUL_SUM, whose factor makes a reduction of its own
};

/// Throws ctran::Error (InvalidArgument), which names dtype and reduction, if the pair has no
/// meaning, or the library has no such reduction.
Element reducedElement(const at::Tensor& tensor, const ReduceOp& op, const Library& library);

/// The factor of PREMUL_SUM as the library reads it.
struct Factor {
  alignas(8) std::array<std::byte, 8> number{};
  at::Tensor tensor;  ///< the factor on the device; if undefined, `number` is used
};

/// Returns the factor of `op` in the type in which `tensor` is reduced.
Factor factorFor(const at::Tensor& tensor, const ReduceOp& op);

}  // namespace torch::comms::nccl
