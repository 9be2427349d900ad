#pragma once

#include "ctran/gpu/device/wait.cuh"

// What stands between the copies of copy engines (copy_engine.h): a kernel of one thread that waits
// for a slot to be written, or to be free, and one that says so. How often a slot has been used is
// in memory, so captured launches stay valid.

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

}  // namespace ctran::device

#ifdef CTRAN_RANKS
CTRAN_KERNEL(ctranWaitForCopy, CopySignalArguments, 32, (waitForCopy(arguments, block)))
CTRAN_KERNEL(ctranSignalCopy, CopySignalArguments, 32, (signalCopy(arguments, block)))
#endif
