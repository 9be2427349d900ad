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
  /// Masks of ranks to and from which messages are labelled, even empty ones, because no signature
  /// says that both ends mean the same.
  uint32_t sends = 0;
  uint32_t receives = 0;
  bool oneWay = false;  ///< in each pair of ranks at most one sends to the other

  /// Returns the messages of a collective that moves blocks.
  static GpuMessages of(const Collective& collective, uint32_t rank, uint32_t size);
};

/// Throws Error(InvalidArgument) unless a rank sends another as much as it receives from it, which
/// it has to do in place.
void checkSwap(uint32_t peer, size_t sent, size_t received);

/// Returns one end of a message, with its flows, steps and offer. `oneWay` is as above.
device::Transfer dealt(const GpuContext& gpu, device::Transfer transfer, bool oneWay,
                       const GpuTarget& target);

/// Runs messages on flows, in steps (exchange/flows.cuh).
void exchangeOnFlows(const GpuContext& gpu, const GpuMessages& messages, const GpuTarget& target);

/// Runs sends and receives at the same time, in one kernel. Those of one peer and direction keep
/// their order; if there are several of them, `staging` holds the list for the kernel.
///
/// If a send and the receive at the same place in these orders use the same memory, there is a
/// kernel for each place, one after another: a block then serves both directions.
void launchMessages(const GpuContext& gpu, StagingMemory& staging,
                    std::span<const Collective> messages, const GpuTarget& target);

}  // namespace ctran
