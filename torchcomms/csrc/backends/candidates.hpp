#pragma once

#include <chrono>
#include <comms/torchcomms/TorchCommBackend.hpp>
#include <memory>
#include <string>

namespace torch::comms {

/// This process among those that may become members of a communicator of another library than the
/// engine. They find each other as those of backend ctran do, which says who is late or lost.
class Candidates {
 public:
  Candidates(const std::string& backend, const std::string& name,
             std::chrono::milliseconds timeout);

  /// By which the others find this process; it stays the same.
  std::string handle() const;
  /// Meets the processes of the handles. Collective over them. Returns `members` with rank, size,
  /// hints, timeout and a store of the new members alone. Throws what CtranBackend::reconfigure
  /// throws.
  CommOptions meet(const ReconfigureOptions& options, CommOptions members);

 private:
  const std::string prefix_;
  std::shared_ptr<TorchCommBackend> bootstrap_;
};

}  // namespace torch::comms
