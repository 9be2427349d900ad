#pragma once

#include "ctran/gpu/device/element.cuh"
#include "ctran/gpu/device/operation.cuh"
#include "ctran/gpu/device/receive.cuh"

// As exchange/flows.cuh for little data: one step, everything in packets. Each rank sends each
// other at least one packet, so that afterwards all have heard of all: with nothing to move it is a
// barrier.

namespace ctran::device {

struct PacketExchangeArguments {
  Team team;
  const char* from[kMaxRanks];
  char* to[kMaxRanks];
  u64 sendBytes[kMaxRanks];
  u64 receiveBytes[kMaxRanks];
  u32 sendPackets[kMaxRanks];  ///< messagePackets of those
  u32 receivePackets[kMaxRanks];
  u32 mostSent;  ///< packets of the largest message to another rank
  u32 mostReceived;
};

CTRAN_INLINE u32 messagePackets(u64 bytes) {
  const u64 packets = packetsFor<u8>(bytes);
  return packets == 0 ? 1 : static_cast<u32>(packets);
}

/// What goes to a rank and what comes from it may be the same memory: thread i reads what it
/// overwrites.
template <u32 kRanks>
CTRAN_INLINE void exchangePackets(const PacketExchangeArguments& a, const Block& block) {
  const Team& team = a.team;
  const u32 start = block.globalThread();
  const u32 stride = block.globalThreads();
  const auto source = [&](u32 r) {
    return bufferOf<const u8>(reinterpret_cast<const u8*>(a.from[r]), a.sendBytes[r]);
  };
  const auto target = [&](u32 r) {
    return bufferOf<u8>(reinterpret_cast<u8*>(a.to[r]), a.receiveBytes[r]);
  };
  const auto load = [&](u32 i, Payload(&own)[kRanks]) {
    CTRAN_UNROLL
    for (u32 step = 1; step < kRanks; ++step) {
      own[step] = read<u8>(source((team.rank + step) % kRanks), i);
    }
  };
  // Asked for before the epoch: both take one trip to memory.
  Payload first[kRanks];
  load(start, first);
  const u32 epoch = begin(team, block);
  if (epoch == 0) return;
  for (u32 i = start; i < a.mostSent; i += stride) {
    if (i != start) load(i, first);
    CTRAN_UNROLL
    for (u32 step = 1; step < kRanks; ++step) {
      const u32 peer = (team.rank + step) % kRanks;
      if (i >= a.sendPackets[peer]) continue;
      storePacket(slotOf(team, epoch, team.rank, peer) + i, first[step], epoch);
    }
  }
  if (a.from[team.rank] != a.to[team.rank]) {
    for (u32 i = start; i < a.receivePackets[team.rank]; i += stride) {
      write<u8>(target(team.rank), i, read<u8>(source(team.rank), i));
    }
  }
  for (u32 i = start; i < a.mostReceived; i += stride) {
    u32 coming = 0;
    CTRAN_UNROLL
    for (u32 r = 0; r < kRanks; ++r) {
      if (r != team.rank && i < a.receivePackets[r]) coming |= 1u << r;
    }
    Payload parts[kRanks];
    if (!receive(team, block, epoch, i, coming, parts)) return;
    CTRAN_UNROLL
    for (u32 r = 0; r < kRanks; ++r) {
      if (coming >> r & 1) write<u8>(target(r), i, parts[r]);
    }
  }
  end(team, block, epoch);
}

}  // namespace ctran::device

#ifdef CTRAN_RANKS
CTRAN_KERNEL(ctranExchangePackets, PacketExchangeArguments, 512,
             exchangePackets<CTRAN_RANKS>(arguments, block))
#endif
