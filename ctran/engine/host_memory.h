#pragma once

#include <memory>

#include "ctran/bootstrap/hand_over.h"
#include "ctran/engine/communicator.h"
#include "ctran/os/shared_memory.h"
#include "ctran/topology/host_map.h"

namespace ctran {

/// What the ranks of one host have together when there are several hosts: an arena, the board of
/// what they do, their recordings, and, stored once for all of them, where the ranks of the
/// communicator are.
struct HostMemory {
  HostMap map;
  HostGroup local;  ///< the group of this host; a rank that is alone here has memory of its own
  /// The mapping of that memory; null if nowhere two ranks share a host.
  std::shared_ptr<SharedMapping> memory;
};

/// Makes the memory. Collective over the ranks of this host. Afterwards `hosts` has all places.
/// Throws Error, after it has told another host of it if it can.
HostMemory shareMemory(const CommunicatorOptions& options, Hosts& hosts, Deadline deadline,
                       WaitHooks* hooks);

}  // namespace ctran
