#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "ctran/collective/collective.h"
#include "torchcomms/csrc/backends/call.hpp"

namespace torch::comms {

/// Describes a call among `ranks` ranks for the engine. `op` is the call's reduction, if it has
/// one. The tensors of the call have to outlive the result.
ctran::Collective collectiveOf(const Call& call, int ranks, const ctran::ReduceOp& op);

/// Describes a message of a batch.
ctran::Collective collectiveOf(const P2POp& message);

/// The tensors of a call, and one more if it is defined.
inline c10::SmallVector<at::Tensor, 3> tensorsOf(const Call& call, const at::Tensor& more) {
  c10::SmallVector<at::Tensor, 3> tensors(call.inputs.begin(), call.inputs.end());
  if (call.outputs.data() != call.inputs.data()) {
    tensors.append(call.outputs.begin(), call.outputs.end());
  }
  if (more.defined()) tensors.push_back(more);
  return tensors;
}

}  // namespace torch::comms
