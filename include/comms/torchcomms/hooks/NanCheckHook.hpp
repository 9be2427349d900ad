#pragma once

#include <comms/torchcomms/TorchCommHooks.hpp>
#include <vector>

namespace torch::comms {

/// Looks for NaNs in what is sent and received, which reads every element: for debugging. An
/// operation that would send one throws before anything is sent; one that has received one throws
/// when it has ended, for `async_op` true in the wait for it.
class NanCheckHook {
 public:
  explicit NanCheckHook(bool checkInputs = true, bool checkOutputs = false)
      : checkInputs_(checkInputs), checkOutputs_(checkOutputs) {}

  void register_with_comm(TorchComm& comm);
  /// Looks no more, on any communicator.
  void unregister();
  /// Whether there are communicators on which it looks for something.
  bool is_enabled() const { return (checkInputs_ || checkOutputs_) && !handles_.empty(); }

 private:
  const bool checkInputs_;
  const bool checkOutputs_;
  std::vector<RemovableHandle> handles_;
};

}  // namespace torch::comms
