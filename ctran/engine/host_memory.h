#pragma once

#include <memory>

#include "ctran/bootstrap/hand_over.h"
#include "ctran/engine/communicator.h"
#include "ctran/os/shared_memory.h"
#include "ctran/topology/host_map.h"

namespace ctran {

/// What the ranks of one of several hosts have together: an arena, what they do and what they
/// record, and once for all of them where the ranks of the communicator are.
struct HostMemory {
  HostMap map;
  HostGroup local;                        ///< its memory, if the rank is alone here its own
  std::shared_ptr<SharedMapping> memory;  ///< the same; null if nowhere ranks share a host
};

/// Collective over the ranks of this host. From then on `hosts` has all places. Throws Error, and
/// has told another host of it if it can.
HostMemory shareMemory(const CommunicatorOptions& options, Hosts& hosts, Deadline deadline,
                       WaitHooks* hooks);

}  // namespace ctran
