#pragma once

#include "ctran/gpu/device/memory.cuh"
#include "ctran/gpu/device/team.cuh"

// Memory that all ranks have mapped, and how a rank tells another one where its is. Only ranks that
// know that all others have it mapped offer it, so whoever gets an offer can take it.

namespace ctran::device {

/// In a rank's memory that all others have mapped.
struct Place {
  u32 segment = 0;  ///< its number there, plus 1; 0: nowhere
  u64 offset = 0;   ///< in it, less than 2^48
};

/// What travels with a flag: a place, or zeros.
CTRAN_INLINE Word16 makeOffer(const Place& place) {
  return {{place.segment, static_cast<u32>(place.offset), static_cast<u32>(place.offset >> 32), 0}};
}

CTRAN_INLINE bool isOffer(const Word16& offer) { return offer.w[0] != 0; }

/// What `peer` has offered, as it is mapped here: past the first-level cache, as the host fills the
/// table in while kernels run.
CTRAN_INLINE char* offered(const Team& team, u32 peer, const Word16& offer) {
  const u64 base = loadRelaxed(&team.state->mapped[peer][offer.w[0] - 1]);
  return reinterpret_cast<char*>(base + (static_cast<u64>(offer.w[2]) << 32 | offer.w[1]));
}

}  // namespace ctran::device
