#pragma once

#include "ctran/gpu/device/packet.cuh"
#include "ctran/gpu/device/wait.cuh"

// How every kernel begins and ends.

#ifndef CTRAN_SCRUB_EVERY
#define CTRAN_SCRUB_EVERY (1u << 30)
#endif

namespace ctran::device {

/// A flag left behind exactly 2^32 operations ago would be taken for a fresh one. So three
/// operations in a row, every 2^30, each wipe the region that nobody is using, which covers all
/// three.
CTRAN_INLINE void scrub(const Team& team, const Block& block, u32 epoch) {
  const u32 unused = (epoch + 2) % kRegions;
  const u64 packets = team.size * team.slotBytes / sizeof(Word16);
  Word16* region = reinterpret_cast<Word16*>(team.scratch[team.rank]) + unused * packets;
  for (u64 i = block.globalThread(); i < packets; i += block.globalThreads()) {
    storeRelaxed(&region[i].w[3], 0u);
    if constexpr (kPayloadWords == 2) storeRelaxed(&region[i].w[1], 0u);
  }
  const u64 lines = team.size * team.lineBytes / sizeof(Word16) / 8;
  Word16* line = reinterpret_cast<Word16*>(team.lines[team.rank]) + unused * lines * 8;
  for (u64 i = block.globalThread(); i < lines; i += block.globalThreads()) {
    storeRelaxed(&line[i * 8 + 7].w[3], 0u);
  }
}

/// The number of the operation that this kernel carries out; 0 when the communicator has failed and
/// the kernel must return. Ends with a barrier of the block.
CTRAN_INLINE u32 begin(const Team& team, const Block& block) {
  const u32 epoch = nextEpoch(team.state->epoch[block.index]);
  const u32 failed = loadRelaxed(&team.state->failed);
  if (block.thread == 0) *block.guard = {};
  block.sync();
  if (failed != kRunning) return 0;
  if ((epoch - 1) % CTRAN_SCRUB_EVERY < kRegions) scrub(team, block, epoch);
  return epoch;
}

/// Records that the operation is over. All kMaxBlocks copies of the epoch advance together,
/// whatever the number of blocks, so the next kernel may have any other: block b reads copy b
/// alone, and among the copies that this kernel reads it writes that one alone, after the barrier
/// of `begin`.
CTRAN_INLINE void end(const Team& team, const Block& block, u32 epoch) {
  for (u32 copy = block.index + block.thread * block.count; copy < kMaxBlocks;
       copy += block.threads * block.count) {
    team.state->epoch[copy] = epoch;
  }
}

}  // namespace ctran::device
