#pragma once

#include "ctran/collective/reduce/arguments.cuh"
#include "ctran/gpu/device/line.cuh"
#include "ctran/gpu/device/receive.cuh"
#include "ctran/gpu/device/reduce.cuh"

// All-reduce, reduce-scatter and reduce in lines, of a size where steps on flows would wait for
// each other more than for the link. The data is in parts, one for each rank: it gets everybody's
// contribution to its part (step 1), reduces it in rank order, and sends the result to whoever
// wants it (step 2). (n - 1) / n * bytes out and in per rank a step, times 16/15 for the flags.

namespace ctran::device {

/// Room for what a rank gets lies in its lines: `unitsOfPart` of step 1 and after them as many of
/// step 2. Warp w owns unit w of every part throughout, so nothing needs a barrier, and outputs may
/// be where inputs are.
template <class Element, class Op, u32 kRanks>
CTRAN_INLINE void reduceLines(const ReduceArguments& a, const Block& block) {
  const Team& team = a.team;
  const u32 rank = team.rank;
  const double factor = factorOf(a);
  const Warp warp = warpOf(block);
  const u32 epoch = ofWarp(begin(team, block));
  if (epoch == 0) return;
  const auto bytesOfPart = [&](auto* part, u32 r) {
    return bytesOf(part, a.counts[r] * sizeof(Element));
  };
  const auto contributed = [&](u32 r, u32 unit) {
    UnitPart part = readUnit(warp, bytesOfPart(static_cast<const char*>(a.parts[r]), r), unit);
    CTRAN_UNROLL
    for (u32 k = 0; k < kThreadWords; ++k) {
      part.w[k] = scaled<Element, Op>(part.w[k], factor);
    }
    return part;
  };
  const u64 second = static_cast<u64>(a.most) * kUnitSlots;
  for (u32 unit = warp.index; unit < a.most; unit += warp.count) {
    CTRAN_UNROLL
    for (u32 step = 1; step < kRanks; ++step) {
      const u32 peer = (rank + step) % kRanks;
      if (unit >= a.packets[peer]) continue;
      storeUnit(warp, linesOf(team, epoch, rank, peer) + u64{unit} * kUnitSlots,
                contributed(peer, unit), epoch);
    }
  }
  const u32 others = ((1u << kRanks) - 1) & ~(1u << rank);
  const auto own = bytesOfPart(static_cast<char*>(a.outputs[rank]), rank);
  for (u32 unit = warp.index; unit < a.packets[rank]; unit += warp.count) {
    UnitPart parts[kRanks];
    UnitPart result = contributed(rank, unit);
    const u64 at = u64{unit} * kUnitSlots;
    const auto from = [&](u32 r) { return linesOf(team, epoch, r, rank) + at; };
    if (!receiveUnits(team, block, warp, epoch, others, from, parts)) return;
    CTRAN_UNROLL
    for (u32 k = 0; k < kThreadWords; ++k) {
      Word16 contributions[kRanks];
      CTRAN_UNROLL
      for (u32 r = 0; r < kRanks; ++r) contributions[r] = parts[r].w[k];
      place(result.w[k], rank, contributions);
      result.w[k] = reduce<Element, Op, kRanks>(contributions);
    }
    CTRAN_UNROLL
    for (u32 step = 1; step < kRanks; ++step) {
      const u32 peer = (rank + step) % kRanks;
      if (!(a.shareWith >> peer & 1)) continue;
      storeUnit(warp, linesOf(team, epoch, rank, peer) + second + at, result, epoch);
    }
    if (own.data != nullptr) writeUnit(warp, own, unit, result);
  }
  for (u32 unit = warp.index; (a.shareWith >> rank & 1) && unit < a.most; unit += warp.count) {
    u32 filled = 0;  // the others whose part has such a unit
    CTRAN_UNROLL
    for (u32 r = 0; r < kRanks; ++r) {
      if (r != rank && unit < a.packets[r]) filled |= 1u << r;
    }
    UnitPart parts[kRanks];
    const u64 at = second + u64{unit} * kUnitSlots;
    const auto from = [&](u32 r) { return linesOf(team, epoch, r, rank) + at; };
    if (!receiveUnits(team, block, warp, epoch, filled, from, parts)) return;
    CTRAN_UNROLL
    for (u32 r = 0; r < kRanks; ++r) {
      if (!(filled >> r & 1)) continue;
      writeUnit(warp, bytesOfPart(static_cast<char*>(a.outputs[r]), r), unit, parts[r]);
    }
  }
  end(team, block, epoch);
}

}  // namespace ctran::device

#ifdef CTRAN_ELEMENT
CTRAN_KERNEL(ctranReduceLines, ReduceArguments, 512,
             (reduceLines<CTRAN_ELEMENT, CTRAN_OP, CTRAN_RANKS>(arguments, block)))
#endif
