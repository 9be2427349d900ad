#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <comms/torchcomms/TorchCommTypes.hpp>
#include <cstddef>

#include "torchcomms/csrc/backends/nccl/library.hpp"

namespace torch::comms::nccl {

/// How a reduction of torch is put to the library: as elements of this type, so many for each
/// element of the tensor, reduced with this.
struct Element {
  DataType type;
  size_t perElement = 1;
  RedOp op = kSum;  ///< not for PREMUL_SUM, whose factor makes a reduction of its own
};

/// Throws ctran::Error (InvalidArgument) naming dtype and reduction if the pair means nothing, or
/// the library has no such reduction.
Element reducedElement(const at::Tensor& tensor, const ReduceOp& op, const Library& library);

/// A factor of PREMUL_SUM as the library reads it.
struct Factor {
  alignas(8) std::array<std::byte, 8> number{};
  at::Tensor tensor;  ///< on the device; else undefined, and `number` counts
};

/// The factor of `op` in the type in which `tensor` is reduced.
Factor factorFor(const at::Tensor& tensor, const ReduceOp& op);

}  // namespace torch::comms::nccl
