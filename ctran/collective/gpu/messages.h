#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ctran/collective/gpu/context.h"

namespace ctran {

class StagingMemory;

/// What this rank sends to, and receives from, every rank.
struct GpuMessages {
  const char* from[device::kMaxRanks] = {};
  char* to[device::kMaxRanks] = {};
  size_t sendBytes[device::kMaxRanks] = {};
  size_t receiveBytes[device::kMaxRanks] = {};
  /// Masks of ranks to and from which a message is labelled, even if it is of nothing: no signature
  /// says that both ends mean the same.
  uint32_t sends = 0;
  uint32_t receives = 0;
  bool oneWay = false;  ///< of all pairs of ranks, one at most sends to the other

  /// Those of a collective that moves blocks.
  static GpuMessages of(const Collective& collective, uint32_t rank, uint32_t size);
};

/// In place, a rank has to send another as much as it receives from it: throws
/// Error(InvalidArgument).
void checkSwap(uint32_t peer, size_t sent, size_t received);

/// One end of a message, with the lanes, steps and offer that it has. `oneWay`: as above.
device::Transfer dealt(const GpuContext& gpu, device::Transfer transfer, bool oneWay,
                       const GpuTarget& target);

/// On lanes, in steps (exchange/lanes.cuh).
void exchangeOnLanes(const GpuContext& gpu, const GpuMessages& messages, const GpuTarget& target);

/// Sends and receives that run at the same time, in one kernel. Those of one peer and direction
/// keep their order; where there are several of them, `staging` has the list for the kernel.
///
/// Where a send and the receive of the same place in those orders are in the same memory, there is
/// a kernel for each place, one after another: a block then serves both directions.
void launchMessages(const GpuContext& gpu, StagingMemory& staging,
                    std::span<const Collective> messages, const GpuTarget& target);

}  // namespace ctran
