#pragma once

#include "ctran/gpu/device/flow.cuh"

// Lines: data and the number of the operation it belongs to, as in packets, but in 128 bytes, of
// which 120 are data: for NVLink, which carries what a warp stores to a line at once whole. (NCCL's
// protocol LL128 rests on that as well.) A warp writes and reads eight lines, a unit of 60 words of
// sixteen bytes. The last thread of each line has one of these words, half in each of its lines;
// the others have two.

namespace ctran::device {

inline constexpr u32 kUnitWords = 60;  ///< of data
inline constexpr u32 kUnitSlots = 64;  ///< and with their flags

#if CTRAN_ON_GPU
inline constexpr u32 kWarpThreads = 32;
#else
inline constexpr u32 kWarpThreads = 1;
#endif
inline constexpr u32 kThreadWords = kUnitSlots / kWarpThreads;

/// The warp a thread belongs to; on the host, one thread.
struct Warp {
  u32 thread;
  u32 index;  ///< of `count`, in all blocks
  u32 count;
};

CTRAN_INLINE Warp warpOf(const Block& block) {
  return {block.thread % kWarpThreads, block.globalThread() / kWarpThreads,
          block.globalThreads() / kWarpThreads};
}

/// The words of a unit that a thread has, in slots as on the wire.
struct UnitPart {
  Word16 w[kThreadWords];
};

/// Which slot of a unit: first those of half the lines, then of the others.
CTRAN_INLINE u32 slotOfPart(const Warp& warp, u32 k) { return warp.thread + k * kWarpThreads; }
CTRAN_INLINE bool hasFlag(u32 slot) { return slot % 8 == 7; }
/// The word of data of a slot: those with a flag have half of it, and of the first lines.
CTRAN_INLINE u32 wordOfSlot(u32 slot) { return slot < 32 ? slot : slot - (slot - 32) / 8; }

CTRAN_INLINE UnitPart readUnit(const Warp& warp, const Bytes<const char>& from, u64 unit) {
  UnitPart part;
  CTRAN_UNROLL
  for (u32 k = 0; k < kThreadWords; ++k) {
    const u32 slot = slotOfPart(warp, k);
    part.w[k] = slot >= 32 && hasFlag(slot) ? Word16{}
                                            : loadUser(from, unit * kUnitWords + wordOfSlot(slot));
  }
  return part;
}

CTRAN_INLINE void writeUnit(const Warp& warp, const Bytes<char>& to, u64 unit,
                            const UnitPart& part) {
  CTRAN_UNROLL
  for (u32 k = 0; k < kThreadWords; ++k) {
    const u32 slot = slotOfPart(warp, k);
    if (slot >= 32 && hasFlag(slot)) continue;
    storeUser(to, unit * kUnitWords + wordOfSlot(slot), part.w[k]);
  }
}

#if CTRAN_ON_GPU

CTRAN_INLINE u32 ofWarp(u32 value) { return __shfl_sync(0xffffffffu, value, 0); }

/// What any thread of the warp has; a barrier of the warp.
CTRAN_INLINE u32 anyOfWarp(u32 bits) {
  bits = __reduce_or_sync(0xffffffffu, bits);
  __syncwarp();
  return bits;
}

CTRAN_INLINE void storeUnit(const Warp& warp, Word16* slots, UnitPart part, u32 epoch) {
  if (hasFlag(warp.thread)) {
    part.w[1] = {{part.w[0].w[2], part.w[0].w[3], epoch, epoch}};
    part.w[0].w[2] = part.w[0].w[3] = epoch;
  }
  __syncwarp();
  storeWhole(slots + warp.thread, part.w[0]);
  storeWhole(slots + 32 + warp.thread, part.w[1]);
}

/// Whether this thread has seen no flag missing; the unit is there if that holds for its warp.
CTRAN_INLINE bool loadUnit(const Warp& warp, const Word16* slots, u32 epoch, UnitPart& part) {
  part.w[0] = loadWhole(slots + warp.thread);
  part.w[1] = loadWhole(slots + 32 + warp.thread);
  if (!hasFlag(warp.thread)) return true;
  const Word16 first = part.w[0], second = part.w[1];
  part.w[0].w[2] = second.w[0];
  part.w[0].w[3] = second.w[1];
  return first.w[2] == epoch && first.w[3] == epoch && second.w[2] == epoch && second.w[3] == epoch;
}

#else

// On the host a line is plain words behind an atomic flag, as packets are.

CTRAN_INLINE u32 ofWarp(u32 value) { return value; }

CTRAN_INLINE u32 anyOfWarp(u32 bits) { return bits; }

CTRAN_INLINE void storeUnit(const Warp&, Word16* slots, const UnitPart& part, u32 epoch) {
  for (u32 slot = 0; slot < kUnitSlots; ++slot) {
    if (!hasFlag(slot)) {
      slots[slot] = part.w[slot];
      continue;
    }
    const Word16& word = part.w[slot % 32];
    for (u32 k = 0; k < 2; ++k) slots[slot].w[k] = word.w[slot / 32 * 2 + k];
    storeRelease(&slots[slot].w[3], epoch);
  }
}

CTRAN_INLINE bool loadUnit(const Warp&, const Word16* slots, u32 epoch, UnitPart& part) {
  for (u32 slot = 7; slot < kUnitSlots; slot += 8) {
    if (loadAcquire(&slots[slot].w[3]) != epoch) return false;
  }
  for (u32 slot = 0; slot < kUnitSlots; ++slot) {
    if (!hasFlag(slot)) {
      part.w[slot] = slots[slot];
      continue;
    }
    for (u32 k = 0; k < 2; ++k) part.w[slot % 32].w[slot / 32 * 2 + k] = slots[slot].w[k];
  }
  return true;
}

#endif

/// Where rank `from` puts its lines for rank `to` during the operation `epoch`: nothing but lines
/// ever lies there, so that flags are where flags were.
CTRAN_INLINE Word16* linesOf(const Team& team, u32 epoch, u32 from, u32 to) {
  return reinterpret_cast<Word16*>(team.lines[to] +
                                   (epoch % kRegions * team.size + from) * team.lineBytes);
}

/// Waits until a unit of every rank in the mask `from`, the same for the whole warp, lies where
/// `slots(rank)` says. Lines are stored whole, but nobody promises that they are read whole: what
/// is used is what has been read after the flags. False, to all of the warp: the communicator has
/// failed, return.
template <u32 kRanks, class Slots>
CTRAN_INLINE bool receiveUnits(const Team& team, const Block& block, const Warp& warp, u32 epoch,
                               u32 from, const Slots& slots, UnitPart (&parts)[kRanks]) {
  for (u32 polls = 1;; ++polls) {
    u32 missing = 0;
    CTRAN_UNROLL
    for (u32 peer = 0; peer < kRanks; ++peer) {
      if (!(from >> peer & 1)) continue;
      if (!loadUnit(warp, slots(peer), epoch, parts[peer])) missing |= 1u << peer;
    }
    missing = anyOfWarp(missing);
    if (missing == 0) break;
    if (polls % kPollsPerCheck != 0) continue;
    u32 goesOn = 1;
    if (warp.thread == 0) goesOn = keepWaiting(team, block, epoch, missing) ? 1 : 0;
    if (!ofWarp(goesOn)) return false;
  }
  CTRAN_UNROLL
  for (u32 peer = 0; peer < kRanks; ++peer) {
    if (from >> peer & 1) loadUnit(warp, slots(peer), epoch, parts[peer]);
  }
  return true;
}

}  // namespace ctran::device
