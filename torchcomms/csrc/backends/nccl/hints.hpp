#pragma once

#include <chrono>
#include <comms/torchcomms/TorchCommOptions.hpp>
#include <string>

#include "torchcomms/csrc/backends/nccl/library.hpp"

namespace torch::comms::nccl {

/// The hints of a communicator, parsed. docs/backends/nccl.md lists them.
struct Hints {
  bool highPriority = false;
  size_t mostIdleEvents = 1000;
  std::chrono::milliseconds checkInterval{100};
  bool watchReplays = true;
  std::chrono::milliseconds replayInterval{1000};
  Config config;  ///< without its texts, which are below
  std::string netName;
  std::string commName;

  bool isBlocking() const { return config.blocking != 0; }
};

/// Returns whether a hint asks for a stream of high priority. Throws std::invalid_argument.
bool wantsHighPriority(const torch::comms::Hints& hints);

/// Parses hints. Unknown ones are noted in the log. Throws std::invalid_argument for a wrong value.
Hints parseHints(const torch::comms::Hints& hints, const Library& library);

}  // namespace torch::comms::nccl
