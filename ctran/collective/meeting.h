#pragma once

#include <string>

#include "ctran/collective/hosts_context.h"

namespace ctran {

/// The first collective of a communicator of several hosts: all ranks wait for all, and receive a
/// text from rank 0.
struct Meeting {
  static constexpr size_t kLongest = 1 << 20;

  HostsContext& hosts;
  std::string word;  ///< on rank 0 the text to send; afterwards the same on all ranks
  FrameMemory frame;
};
Task meet(Meeting& meeting, const Collective& barrier);

}  // namespace ctran
