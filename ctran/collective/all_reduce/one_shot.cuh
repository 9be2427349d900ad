#pragma once

#include "ctran/collective/reduce/packets.cuh"
#include "ctran/gpu/device/operation.cuh"
#include "ctran/gpu/device/receive.cuh"
#include "ctran/gpu/device/reduce.cuh"

// One-shot all-reduce: every rank sends its whole input to every other in packets, and each reduces
// all of them by itself. One step; (n - 1) * bytes out and in per rank, times 16/12 for the flags.
// Best where latency counts for more than bytes.

namespace ctran::device {

/// `input` and `output` may be the same memory: a thread reads what it overwrites.
template <class Element, class Op, u32 kRanks>
CTRAN_INLINE void allReduceOneShot(const Team& team, const Block& block, const Element* input,
                                   Element* output, u64 count, double factor) {
  const auto in = bufferOf<const Element>(input, count);
  const auto out = bufferOf<Element>(output, count);
  const u64 packets = packetsToAll<Element>(count);
  const u64 start = block.globalThread();
  const u64 stride = block.globalThreads();
  const u32 others = ((1u << kRanks) - 1) & ~(1u << team.rank);
  // Asked for before the epoch: both take one trip to memory.
  const Payload first = start < packets ? contribution<Element, Op>(in, start, factor) : Payload{};
  const u32 epoch = begin(team, block);
  if (epoch == 0) return;
  for (u64 i = start; i < packets; i += stride) {
    const Payload own = i == start ? first : contribution<Element, Op>(in, i, factor);
    CTRAN_UNROLL
    for (u32 step = 1; step < kRanks; ++step) {
      const u32 peer = (team.rank + step) % kRanks;
      storePacket(slotOf(team, epoch, team.rank, peer) + i, own, epoch);
    }
  }
  for (u64 i = start; i < packets; i += stride) {
    const Payload own = i == start ? first : contribution<Element, Op>(in, i, factor);
    Payload parts[kRanks];
    if (!receive(team, block, epoch, i, others, parts)) return;
    place(own, team.rank, parts);
    write<Element>(out, i, reduce<Element, Op, kRanks>(parts));
  }
  end(team, block, epoch);
}

}  // namespace ctran::device

#ifdef CTRAN_ELEMENT
CTRAN_KERNEL(ctranAllReduceOneShot, ReduceArguments, CTRAN_RANKS > 4 ? 512 : 1024,
             (allReduceOneShot<CTRAN_ELEMENT, CTRAN_OP, CTRAN_RANKS>(
                 arguments.team, block, static_cast<const CTRAN_ELEMENT*>(arguments.parts[0]),
                 static_cast<CTRAN_ELEMENT*>(arguments.outputs[0]), arguments.counts[0],
                 factorOf(arguments))))
#endif
