#pragma once

#include "ctran/collective/reduce/arguments.cuh"
#include "ctran/gpu/device/operation.cuh"
#include "ctran/gpu/device/receive.cuh"
#include "ctran/gpu/device/reduce.cuh"

// Reduce-scatter and reduce of little data in one step: everybody sends the owner of a part its
// contribution in packets. (n - 1) / n * bytes out and in per rank of a reduce-scatter, times
// 16/12. Owners of nothing are sent one packet, so that afterwards all have heard of all.

namespace ctran::device {

/// Output and own part may be the same memory.
template <class Element, class Op, u32 kRanks>
CTRAN_INLINE void reducePackets(const ReduceArguments& a, const Block& block) {
  const Team& team = a.team;
  const double factor = factorOf(a);
  const u32 start = block.globalThread();
  const u32 stride = block.globalThreads();
  const auto load = [&](u32 r, u32 i) {
    return contribution<Element, Op>(
        bufferOf<const Element>(static_cast<const Element*>(a.parts[r]), a.counts[r]), i, factor);
  };
  u32 most = 0;
  // Asked for before the epoch: both take one trip to memory.
  Payload first[kRanks];
  CTRAN_UNROLL
  for (u32 step = 0; step < kRanks; ++step) {
    const u32 r = (team.rank + step) % kRanks;
    first[step] = load(r, start);
    if (step != 0 && a.packets[r] > most) most = a.packets[r];
  }
  const u32 epoch = begin(team, block);
  if (epoch == 0) return;
  for (u32 i = start; i < most; i += stride) {
    CTRAN_UNROLL
    for (u32 step = 1; step < kRanks; ++step) {
      const u32 peer = (team.rank + step) % kRanks;
      if (i >= a.packets[peer]) continue;
      const Payload part = i == start ? first[step] : load(peer, i);
      storePacket(slotOf(team, epoch, team.rank, peer) + i, part, epoch);
    }
  }
  const auto out =
      bufferOf<Element>(static_cast<Element*>(a.outputs[team.rank]), a.counts[team.rank]);
  const u32 others = ((1u << kRanks) - 1) & ~(1u << team.rank);
  for (u32 i = start; i < a.packets[team.rank]; i += stride) {
    Payload parts[kRanks];
    const Payload mine = i == start ? first[0] : load(team.rank, i);
    if (!receive(team, block, epoch, i, others, parts)) return;
    place(mine, team.rank, parts);
    write<Element>(out, i, reduce<Element, Op, kRanks>(parts));
  }
  end(team, block, epoch);
}

}  // namespace ctran::device

#ifdef CTRAN_ELEMENT
CTRAN_KERNEL(ctranReducePackets, ReduceArguments, 512,
             (reducePackets<CTRAN_ELEMENT, CTRAN_OP, CTRAN_RANKS>(arguments, block)))
#endif
