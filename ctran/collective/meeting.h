#pragma once

#include <string>

#include "ctran/collective/hosts_context.h"

namespace ctran {

/// What happens when a communicator of several hosts is made, as one collective: all wait for all,
/// and hear a word of rank 0.
struct Meeting {
  static constexpr size_t kLongest = 1 << 20;

  HostsContext& hosts;
  std::string word;  ///< of rank 0 at first
  FrameMemory frame;
};
Task meet(Meeting& meeting, const Collective& barrier);

}  // namespace ctran
