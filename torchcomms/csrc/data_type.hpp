#pragma once

#include <ATen/core/Tensor.h>

#include <comms/torchcomms/TorchCommTypes.hpp>

#include "ctran/base/data_type.h"
#include "ctran/base/reduce_op.h"

namespace torch::comms {

/// Returns the engine's type for a tensor that is only moved; every dense dtype has one.
ctran::DataType movedType(const at::Tensor& tensor);

/// Returns the engine's type for a dtype that some reduction accepts. Throws ctran::Error
/// (InvalidArgument), which names the dtype, if none does.
ctran::DataType reducibleType(c10::ScalarType type);

/// Returns the engine's type for a tensor that is reduced with `op`. Throws ctran::Error
/// (InvalidArgument), which names the dtype and the operation, if they have no meaning together.
ctran::DataType reducedType(const at::Tensor& tensor, ctran::ReduceKind op);

ctran::ReduceOp engineOp(const ReduceOp& op);

}  // namespace torch::comms
