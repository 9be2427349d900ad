#pragma once

#include "ctran/collective/all_reduce/one_shot.cuh"

// Two-shot all-reduce: rank r reduces part r of everybody's input (step 1) and sends the result to
// all (step 2), both in packets. Two steps; 2 (n - 1) / n * bytes out and in per rank, times 16/12
// for the flags. Every element is reduced once, so all ranks hold the same bits whatever the
// operation.

namespace ctran::device {

/// Part p is packets [p * share, (p + 1) * share) of the input. A slot holds `share` packets of
/// step 1 and after them `share` of step 2. Thread i owns packet i of every part throughout, so
/// nothing needs a barrier and `input` and `output` may be the same memory.
template <class Element, class Op, u32 kRanks>
CTRAN_INLINE void allReduceTwoShot(const Team& team, const Block& block, const Element* input,
                                   Element* output, u64 count, double factor) {
  const auto in = bufferOf<const Element>(input, count);
  const auto out = bufferOf<Element>(output, count);
  const u64 packets = packetsToAll<Element>(count);
  const u64 share = (packets + kRanks - 1) / kRanks;
  const u64 mine = team.rank * share;
  const u64 start = block.globalThread();
  const u64 stride = block.globalThreads();
  const u32 others = ((1u << kRanks) - 1) & ~(1u << team.rank);
  // Asked for before the epoch: both take one trip to memory.
  Payload first[kRanks];
  CTRAN_UNROLL
  for (u32 step = 1; step < kRanks; ++step) {
    const u64 at = (team.rank + step) % kRanks * share + start;
    if (start < share && at < packets) first[step] = contribution<Element, Op>(in, at, factor);
  }
  const u32 epoch = begin(team, block);
  if (epoch == 0) return;
  for (u64 i = start; i < share; i += stride) {
    CTRAN_UNROLL
    for (u32 step = 1; step < kRanks; ++step) {
      const u32 peer = (team.rank + step) % kRanks;
      const u64 at = peer * share + i;
      if (at >= packets) continue;
      const Payload part = i == start ? first[step] : contribution<Element, Op>(in, at, factor);
      storePacket(slotOf(team, epoch, team.rank, peer) + i, part, epoch);
    }
  }
  for (u64 i = start; i < share && mine + i < packets; i += stride) {
    Payload parts[kRanks];
    const Payload own = contribution<Element, Op>(in, mine + i, factor);
    if (!receive(team, block, epoch, i, others, parts)) return;
    place(own, team.rank, parts);
    const Payload sum = reduce<Element, Op, kRanks>(parts);
    CTRAN_UNROLL
    for (u32 step = 1; step < kRanks; ++step) {
      const u32 peer = (team.rank + step) % kRanks;
      storePacket(slotOf(team, epoch, team.rank, peer) + share + i, sum, epoch);
    }
    write<Element>(out, mine + i, sum);
  }
  for (u64 i = start; i < share; i += stride) {
    u32 filled = 0;  // the others whose part has a packet i: all but, at the end, the last ones
    CTRAN_UNROLL
    for (u32 peer = 0; peer < kRanks; ++peer) {
      if (peer != team.rank && peer * share + i < packets) filled |= 1u << peer;
    }
    Payload parts[kRanks];
    if (!receive(team, block, epoch, share + i, filled, parts)) return;
    CTRAN_UNROLL
    for (u32 peer = 0; peer < kRanks; ++peer) {
      if (filled >> peer & 1) write<Element>(out, peer * share + i, parts[peer]);
    }
  }
  end(team, block, epoch);
}

}  // namespace ctran::device

#ifdef CTRAN_ELEMENT
CTRAN_KERNEL(ctranAllReduceTwoShot, ReduceArguments, CTRAN_RANKS > 4 ? 512 : 1024,
             (allReduceTwoShot<CTRAN_ELEMENT, CTRAN_OP, CTRAN_RANKS>(
                 arguments.team, block, static_cast<const CTRAN_ELEMENT*>(arguments.parts[0]),
                 static_cast<CTRAN_ELEMENT*>(arguments.outputs[0]), arguments.counts[0],
                 factorOf(arguments))))
#endif
