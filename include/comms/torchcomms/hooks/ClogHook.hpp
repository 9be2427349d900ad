#pragma once

#include <comms/torchcomms/TorchCommHooks.hpp>
#include <memory>
#include <string>
#include <vector>

namespace torch::comms {

class ClogWriter;

/// Writes a compact log of the operations of communicators, one line per event; see docs/hooks.md.
/// A log is of one rank.
class ClogHook {
 public:
  /// `output`: the file, which is there from now on; "{rank}" in it becomes the rank of the first
  /// communicator, and in a folder the file is "clog_rank<rank>.log": then it is made when that is
  /// registered. `events`: "LIFECYCLE" or "ALL" add start, end and waits to
  /// what is always logged. `verbose`: "buffers" adds addresses. Throws std::invalid_argument, and
  /// std::runtime_error if the file cannot be written.
  explicit ClogHook(std::string output, const std::vector<std::string>& events = {},
                    const std::vector<std::string>& verbose = {});

  /// From now on the operations of `comm` are logged. Throws std::runtime_error if the file cannot
  /// be written.
  void register_with_comm(TorchComm& comm);
  /// Logs no more, of any communicator.
  void unregister();

 private:
  std::shared_ptr<ClogWriter> writer_;
  std::vector<RemovableHandle> handles_;
};

}  // namespace torch::comms
