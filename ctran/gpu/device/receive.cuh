#pragma once

#include "ctran/gpu/device/packet.cuh"
#include "ctran/gpu/device/wait.cuh"

namespace ctran::device {

/// Waits until packet `at` of every rank in the mask `from` lies in our slots, and puts the
/// payloads into `parts`; what it puts there for others means nothing. All slots are looked at
/// together (our own too, which nobody fills), so a round costs one latency and `parts` stays in
/// registers. False: the communicator has failed, return.
template <u32 kRanks>
CTRAN_INLINE bool receive(const Team& team, const Block& block, u32 epoch, u64 at, u32 from,
                          Payload (&parts)[kRanks]) {
  for (u32 polls = 1;; ++polls) {
    u32 missing = 0;
    CTRAN_UNROLL
    for (u32 peer = 0; peer < kRanks; ++peer) {
      const Word16* slot = slotOf(team, epoch, peer, team.rank) + at;
      if (!loadPacket(slot, epoch, parts[peer])) missing |= 1u << peer;
    }
    missing &= from;
    if (missing == 0) return true;
    if (polls % kPollsPerCheck == 0 && !keepWaiting(team, block, epoch, missing)) {
      return false;
    }
  }
}

/// parts[rank] = own, by selection: indexing with a variable would send `parts` to memory.
template <u32 kRanks, class Words>
CTRAN_INLINE void place(const Words& own, u32 rank, Words (&parts)[kRanks]) {
  CTRAN_UNROLL
  for (u32 r = 0; r < kRanks; ++r) {
    CTRAN_UNROLL
    for (u32 k = 0; k < sizeof(Words) / 4; ++k) {
      parts[r].w[k] = r == rank ? own.w[k] : parts[r].w[k];
    }
  }
}

}  // namespace ctran::device
