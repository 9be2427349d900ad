#pragma once

#include "ctran/gpu/device/flow.cuh"

// What stands between the copies of copy engines: a kernel of one thread that waits for a slot to
// be written, or to be free, and one that says so (copy_engine.h); and one in which all ranks meet,
// before and after copies that need no slots (persistent_copy.h). How often a slot has been used,
// and ranks have met, is in memory, so captured launches stay valid.

namespace ctran::device {

struct CopySignalArguments {
  Team team;
  u32* uses;  ///< ours: how often this end has used the slot, from 0
  u32* flag;  ///< of a wait: ours, which the peer writes; of a signal: the peer's
  u32 peer;
  u32 ahead;  ///< of a wait: until the flag is at least `uses` and so many
};

/// In reports of failures, which several kernels may write at the same time: the same for all.
inline constexpr u32 kCopyEpoch = 1;

CTRAN_INLINE void waitForCopy(const CopySignalArguments& a, const Block& block) {
  if (block.globalThread() != 0) return;
  *block.guard = {};
  if (loadRelaxed(&a.team.state->failed) != kRunning) return;
  const u32 target = *a.uses + a.ahead;
  // A difference, so that counts may wrap around. The copies that follow on the stream begin when
  // this kernel has ended; what was acquired here comes before them.
  for (u32 polls = 1; static_cast<i32>(loadAcquire(a.flag) - target) < 0; ++polls) {
    if (polls % kPollsPerCheck == 0 && !keepWaiting(a.team, block, kCopyEpoch, 1u << a.peer)) {
      return;
    }
  }
}

/// The copies before it on the stream have ended, here and where they went.
CTRAN_INLINE void signalCopy(const CopySignalArguments& a, const Block& block) {
  if (block.globalThread() != 0) return;
  if (loadRelaxed(&a.team.state->failed) != kRunning) return;
  const u32 number = *a.uses + 1;
  *a.uses = number;
  storeRelease(a.flag, number);
}

struct MeetArguments {
  Team team;
  u32 barrier;  ///< all that meets here is in the same order on all ranks
};

CTRAN_INLINE u32* barrierFlagOf(const Team& team, u32 barrier, u32 from, u32 to) {
  return team.flags[to] + (2 * kMaxRanks * kMaxFlows + barrier * kMaxRanks + from) * kFlagWords;
}

/// One block, a thread for each other rank: tells it that this stream has got here, and waits until
/// its has. What came before it on any rank's stream comes before what follows it on this one.
CTRAN_INLINE void meet(const MeetArguments& a, const Block& block) {
  const Team& team = a.team;
  if (!enter(team, block)) return;
  u32* met = team.state->met[a.barrier];
  for (u32 r = block.thread; r < team.size; r += block.threads) {
    if (r != team.rank) storeRelease(barrierFlagOf(team, a.barrier, team.rank, r), met[r] + 1);
  }
  for (u32 r = block.thread; r < team.size; r += block.threads) {
    if (r == team.rank) continue;
    const u32* flag = barrierFlagOf(team, a.barrier, r, team.rank);
    // The other one may be ahead by one barrier, not more: it needs our next signal for that.
    for (u32 polls = 1; static_cast<i32>(loadAcquire(flag) - (met[r] + 1)) < 0; ++polls) {
      if (polls % kPollsPerCheck == 0 && !keepWaiting(team, block, kCopyEpoch, 1u << r)) return;
    }
    ++met[r];
  }
}

}  // namespace ctran::device

#ifdef CTRAN_RANKS
CTRAN_KERNEL(ctranWaitForCopy, CopySignalArguments, 32, (waitForCopy(arguments, block)))
CTRAN_KERNEL(ctranSignalCopy, CopySignalArguments, 32, (signalCopy(arguments, block)))
CTRAN_KERNEL(ctranMeet, MeetArguments, 32, (meet(arguments, block)))
#endif
