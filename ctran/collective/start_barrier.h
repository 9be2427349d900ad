#pragma once

#include <string>

#include "ctran/collective/hosts_context.h"

namespace ctran {

/// The first collective of a communicator of several hosts: a barrier that also brings a text from
/// rank 0 to all.
struct StartBarrier {
  static constexpr size_t kLongest = 1 << 20;

  HostsContext& hosts;
  std::string text;  ///< on rank 0 the text to send; afterwards the same on all ranks
  FrameMemory frame;
};
Task startBarrier(StartBarrier& start, const Collective& barrier);

}  // namespace ctran
