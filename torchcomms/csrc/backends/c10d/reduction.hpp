#pragma once

#include <ATen/core/Tensor.h>

#include <comms/torchcomms/TorchCommTypes.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "ctran/base/reduce_op.h"

namespace torch::comms {

/// How a reduction is put to a c10d backend that knows few dtypes and operations.
///
/// Values are encoded: seen or converted as a dtype that the backend reduces, such that decoding
/// the reduced values gives what the operation means. The table stands in docs/backends/gloo.md:
///  - bool as uint8, where SUM is MAX and PRODUCT is MIN;
///  - 16 and 32-bit integers that the backend lacks in a wider one, whose lower bits are the same;
///  - uint64 as int64: same bits; for MIN and MAX with the sign bit flipped, so that the order is;
///  - 8-bit floats in float32: rounded once, at the end;
///  - complex as pairs of real numbers.
/// AVG is a SUM that decoding divides, integers once they are of their own dtype; for PREMUL_SUM
/// encoding multiplies, a copy.
class Reduction {
 public:
  /// `carriesBits`: the backend has BAND, BOR and BXOR. Throws ctran::Error (InvalidArgument) if
  /// `op` has no meaning for the dtype of `example`.
  Reduction(const at::Tensor& example, const ReduceOp& op, int ranks, bool carriesBits);

  /// Returns whether the backend can reduce encoded values. If not, they are gathered, and
  /// reduceBlocks reduces them.
  bool isCarried() const;
  /// Returns the operation that the backend is asked for.
  c10d::ReduceOp::RedOpType op() const { return op_; }

  /// Returns the values to reduce, flat. They may be the memory of `tensor`.
  at::Tensor encode(const at::Tensor& tensor) const;
  /// Writes reduced values to `tensor`. It may change the values.
  void decode(const at::Tensor& values, const at::Tensor& tensor) const;
  /// Reduces encoded `blocks` (one row per rank) to one, in the order of ranks. 16-bit floats are
  /// accumulated, and returned, in float32.
  at::Tensor reduceBlocks(const at::Tensor& blocks) const;

 private:
  bool ordersUnsigned() const;
  void store(const at::Tensor& values, const at::Tensor& tensor) const;

  const c10::ScalarType type_;
  const ctran::ReduceOp wanted_;
  const int ranks_;
  const bool carriesBits_;
  c10d::ReduceOp::RedOpType op_;
};

/// Returns the memory of a dense, contiguous tensor as bytes; the result holds the tensor.
at::Tensor bytesOf(const at::Tensor& tensor);
std::vector<at::Tensor> bytesOf(const std::vector<at::Tensor>& tensors);

}  // namespace torch::comms
