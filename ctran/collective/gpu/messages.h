#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ctran/collective/gpu/context.h"

namespace ctran {

/// What this rank sends to, and receives from, every rank.
struct GpuMessages {
  const char* from[device::kMaxRanks] = {};
  char* to[device::kMaxRanks] = {};
  size_t sendBytes[device::kMaxRanks] = {};
  size_t receiveBytes[device::kMaxRanks] = {};
  uint32_t sendTags[device::kMaxRanks] = {};
  uint32_t receiveTags[device::kMaxRanks] = {};
  /// Masks of ranks to and from which a message is labelled, even if it is of nothing: no signature
  /// says that both ends mean the same.
  uint32_t sends = 0;
  uint32_t receives = 0;
  bool oneWay = false;  ///< of all pairs of ranks, one at most sends to the other

  /// Those of a collective that moves blocks.
  static GpuMessages of(const Collective& collective, uint32_t rank, uint32_t size);
};

/// On lanes, in steps (exchange/lanes.cuh). Throws Error(InvalidArgument) if data is to change
/// places with less or more of it.
void exchangeOnLanes(const GpuContext& gpu, const GpuMessages& messages, const GpuTarget& target);

/// Sends and receives that run at the same time. Those of one peer and direction keep their order.
void launchMessages(const GpuContext& gpu, std::span<const Collective> messages,
                    const GpuTarget& target);

}  // namespace ctran
