#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <utility>

#include "ctran/collective/collective.h"
#include "torchcomms/csrc/backends/call.hpp"
#include "torchcomms/csrc/exit_gate.hpp"

namespace torch::comms {

/// Describes a call among `ranks` ranks for the engine. `op` is the call's reduction, if it has
/// one. The tensors of the call have to outlive the result.
ctran::Collective collectiveOf(const Call& call, int ranks, const ctran::ReduceOp& op);

/// Describes a message of a batch.
ctran::Collective collectiveOf(const P2POp& message);

/// Owns the tensors of a call until it has ended. To release a tensor may need the interpreter's
/// lock.
struct HeldTensors {
  HeldTensors(const Call& call, const at::Tensor& more) {
    tensors.append(call.inputs.begin(), call.inputs.end());
    if (call.outputs.data() != call.inputs.data()) {
      tensors.append(call.outputs.begin(), call.outputs.end());
    }
    if (more.defined()) tensors.push_back(more);
  }
  ~HeldTensors() {
    if (ExitGate::enter()) {
      tensors.clear();
      ExitGate::leave();
    } else {
      static_cast<void>(new c10::SmallVector<at::Tensor, 3>(std::move(tensors)));  // for ever
    }
  }
  HeldTensors(const HeldTensors&) = delete;
  HeldTensors& operator=(const HeldTensors&) = delete;

  c10::SmallVector<at::Tensor, 3> tensors;
};

}  // namespace torch::comms
