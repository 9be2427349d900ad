#pragma once

#include <comms/torchcomms/TorchCommBackend.hpp>

#include "ctran/collective/collective.h"

namespace torch::comms {

/// Describes a call for the engine. The tensors of the call have to outlive the result.
ctran::Collective collectiveOf(const RowExchangeCall& call);

/// Host copies of the tensors of a call on a GPU. Kernels move rows in the order of the ranks only;
/// rows and chunks that are listed, and rows that return to be summed, are moved by the CPU.
class HostRows {
 public:
  static bool areFor(const RowExchangeCall& call);

  /// Waits for what the current stream holds. `call` has to outlive the object.
  explicit HostRows(const RowExchangeCall& call);

  const RowExchangeCall& call() const { return onHost_; }
  /// Copies what the operation has written to the device, and waits until it is there.
  void bringBack() const;

 private:
  const RowExchangeCall& onDevice_;
  RowExchangeCall onHost_;
};

}  // namespace torch::comms
