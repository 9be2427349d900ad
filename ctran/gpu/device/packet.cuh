#pragma once

#include "ctran/gpu/device/memory.cuh"
#include "ctran/gpu/device/team.cuh"

// Packets: data and the number of the operation it belongs to, in one access. Whoever sees the
// number has the data; no fence, no second flag, one trip over the link.

#ifndef CTRAN_PAYLOAD_WORDS
#define CTRAN_PAYLOAD_WORDS 3
#endif

namespace ctran::device {

/// 3: twelve bytes and a flag, for links that carry sixteen bytes whole.
/// 2: two halves of four bytes and a flag each, for links that only carry eight whole.
inline constexpr u32 kPayloadWords = CTRAN_PAYLOAD_WORDS;
static_assert(kPayloadWords == 2 || kPayloadWords == 3);

struct Payload {
  u32 w[kPayloadWords];
};

/// Where word k of the payload lies; every other word of the packet is the flag.
CTRAN_INLINE constexpr u32 placeOf(u32 k) { return kPayloadWords == 3 ? k : 2 * k; }

#if CTRAN_ON_GPU

CTRAN_INLINE void storePacket(Word16* slot, const Payload& payload, u32 epoch) {
  Word16 v = {{epoch, epoch, epoch, epoch}};
  CTRAN_UNROLL
  for (u32 k = 0; k < kPayloadWords; ++k) v.w[placeOf(k)] = payload.w[k];
  storeWhole(slot, v);
}

/// Whether the slot holds a packet of `epoch`; if so, its payload.
CTRAN_INLINE bool loadPacket(const Word16* slot, u32 epoch, Payload& payload) {
  const Word16 v = loadWhole(slot);
  CTRAN_UNROLL
  for (u32 k = 0; k < kPayloadWords; ++k) payload.w[k] = v.w[placeOf(k)];
  return v.w[3] == epoch && (kPayloadWords == 3 || v.w[1] == epoch);
}

#else

// On the host a packet is plain words behind an atomic flag: a protocol that overwrites a slot
// which somebody may still read is a data race there, and ThreadSanitizer says so.

CTRAN_INLINE void storePacket(Word16* slot, const Payload& payload, u32 epoch) {
  for (u32 k = 0; k < kPayloadWords; ++k) slot->w[k] = payload.w[k];
  storeRelease(&slot->w[3], epoch);
}

CTRAN_INLINE bool loadPacket(const Word16* slot, u32 epoch, Payload& payload) {
  if (loadAcquire(&slot->w[3]) != epoch) return false;
  for (u32 k = 0; k < kPayloadWords; ++k) payload.w[k] = slot->w[k];
  return true;
}

#endif

#if CTRAN_ON_GPU

/// Packets that hold eight bytes, in halves with a flag each: any link carries those.
CTRAN_INLINE void storeHalves(Word16* slot, u32 flag, u64 payload) {
  storeWhole(slot, {{static_cast<u32>(payload), flag, static_cast<u32>(payload >> 32), flag}});
}

/// Whether the slot holds such a packet; if so, its payload.
CTRAN_INLINE bool loadHalves(const Word16* slot, u32 flag, u64& payload) {
  const Word16 v = loadWhole(slot);
  payload = v.w[0] | static_cast<u64>(v.w[2]) << 32;
  return v.w[1] == flag && v.w[3] == flag;
}

#else

CTRAN_INLINE void storeHalves(Word16* slot, u32 flag, u64 payload) {
  slot->w[0] = static_cast<u32>(payload);
  slot->w[2] = static_cast<u32>(payload >> 32);
  storeRelease(&slot->w[3], flag);
}

CTRAN_INLINE bool loadHalves(const Word16* slot, u32 flag, u64& payload) {
  if (loadAcquire(&slot->w[3]) != flag) return false;
  payload = slot->w[0] | static_cast<u64>(slot->w[2]) << 32;
  return true;
}

#endif

/// Takes the flags off a packet that was sent long before one with the flag `now`, unless a new one
/// comes meanwhile. Flags in use are close to `now`, on either side.
CTRAN_INLINE void forgetHalves(Word16* slot, u32 now) {
  constexpr u32 kLong = 1u << 29;
  for (u32 at = 1; at < 4; at += 2) {
    u32* const word = &slot->w[at];
    u32 flag = loadRelaxed(word);
    if (flag == 0 || now - flag < kLong || flag - now < kLong) continue;
#if CTRAN_ON_GPU
    asm volatile("{ .reg .u32 was; atom.relaxed.sys.global.cas.b32 was, [%0], %1, 0; }" ::"l"(word),
                 "r"(flag)
                 : "memory");
#else
    std::atomic_ref<u32>(*word).compare_exchange_strong(flag, 0, std::memory_order_relaxed);
#endif
  }
}

/// Where rank `from` puts its packets for rank `to` during the operation `epoch`.
CTRAN_INLINE Word16* slotOf(const Team& team, u32 epoch, u32 from, u32 to) {
  return reinterpret_cast<Word16*>(team.scratch[to] +
                                   (epoch % kRegions * team.size + from) * team.slotBytes);
}

}  // namespace ctran::device
