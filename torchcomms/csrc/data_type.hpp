#pragma once

#include <ATen/core/Tensor.h>

#include <comms/torchcomms/TorchCommTypes.hpp>

#include "ctran/base/data_type.h"
#include "ctran/base/reduce_op.h"

namespace torch::comms {

/// The engine's type for a tensor that is only moved: any dense dtype.
ctran::DataType movedType(const at::Tensor& tensor);

/// The engine's type for a dtype that some reduction takes. Throws ctran::Error (InvalidArgument)
/// naming it if none does.
ctran::DataType reducibleType(c10::ScalarType type);

/// The engine's type for a tensor that is reduced with `op`. Throws ctran::Error (InvalidArgument)
/// naming the dtype and the operation if that has no meaning.
ctran::DataType reducedType(const at::Tensor& tensor, ctran::ReduceKind op);

ctran::ReduceOp engineOp(const ReduceOp& op);

}  // namespace torch::comms
