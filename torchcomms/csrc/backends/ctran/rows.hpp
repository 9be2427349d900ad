#pragma once

#include <comms/torchcomms/TorchCommBackend.hpp>

#include "ctran/collective/collective.h"

namespace torch::comms {

/// What the engine makes of a call. The tensors of the call have to outlive it.
ctran::Collective collectiveOf(const RowExchangeCall& call);

/// The tensors of a call on a GPU, in the host's memory: kernels move rows in the order of the
/// ranks; rows and chunks that are listed, and those that return to be summed, are the processor's.
class HostRows {
 public:
  static bool areFor(const RowExchangeCall& call);

  /// Waits for what the current stream holds. `call` has to outlive it.
  explicit HostRows(const RowExchangeCall& call);

  const RowExchangeCall& call() const { return onHost_; }
  /// Copies what the operation has written, and waits until it is there.
  void bringBack() const;

 private:
  const RowExchangeCall& onDevice_;
  RowExchangeCall onHost_;
};

}  // namespace torch::comms
