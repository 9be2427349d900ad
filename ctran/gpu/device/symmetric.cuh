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

/// What travels with a flag: two places of a rank, or zeros.
CTRAN_INLINE Word16 makeOffer(const Place& in, const Place& out) {
  return {{in.segment | out.segment << 16, static_cast<u32>(in.offset),
           static_cast<u32>(out.offset),
           static_cast<u32>(in.offset >> 32) | static_cast<u32>(out.offset >> 32) << 16}};
}

CTRAN_INLINE bool isOffer(const Word16& offer) { return offer.w[0] != 0; }

/// Past the first-level cache: the host fills the table in while kernels run.
CTRAN_INLINE char* mappedAt(const Team& team, u32 peer, u32 segment, u32 low, u32 high) {
  const u64 base = loadRelaxed(&team.state->mapped[peer][segment - 1]);
  return reinterpret_cast<char*>(base + (static_cast<u64>(high) << 32 | low));
}

/// What `peer` has offered as input, as it is mapped here.
CTRAN_INLINE const char* offeredInput(const Team& team, u32 peer, const Word16& offer) {
  return mappedAt(team, peer, offer.w[0] & 0xffff, offer.w[1], offer.w[3] & 0xffff);
}

CTRAN_INLINE char* offeredOutput(const Team& team, u32 peer, const Word16& offer) {
  return mappedAt(team, peer, offer.w[0] >> 16, offer.w[2], offer.w[3] >> 16);
}

}  // namespace ctran::device
