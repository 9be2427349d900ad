#pragma once

#include "ctran/gpu/device/block.cuh"
#include "ctran/gpu/device/memory.cuh"
#include "ctran/gpu/device/team.cuh"

// Waiting that always ends. A wait polls; every kPollsPerCheck polls it asks the block's guard
// whether to go on. At most one thread of a block looks at the host's abort word, after a
// millisecond of waiting and every millisecond from then on, and tells the others through the
// guard. Not sooner: while it reads the host's memory it does not see what arrives, and with many
// blocks on several GPUs that takes tens of microseconds, for which others then wait, and look,
// too. (Measured on four H200, looking every 10 us: once an operation was slow, all that followed
// were, 20 times.)

namespace ctran::device {

inline constexpr u32 kPollsPerCheck = 32;
inline constexpr i64 kLookEveryNs = 1000000;

/// Ends this kernel, and makes all that follow end at once. The first to say why is reported.
CTRAN_INLINE void giveUp(const Team& team, Guard& guard, u32 epoch, u32 why,
                         const Refusal& refusal = {}) {
  storeShared(&guard.stop, why);
  if (!exchangeShared(&team.state->failed, u32{kRunning}, why)) return;
  if (why == kRefused) team.report->refusal = refusal;
  storeRelaxed(&team.report->epoch, epoch);
  storeRelease(&team.report->state, why);
}

/// Whether to go on waiting for the ranks in the mask `missing`. False once this communicator has
/// failed: the caller returns from the kernel without touching its output any more.
CTRAN_INLINE bool keepWaiting(const Team& team, const Block& block, u32 epoch, u32 missing) {
  pauseOnHost();
  Guard& guard = *block.guard;
  u32 stop = loadShared(&guard.stop);
  if (stop == kRunning) {
    const u64 now = timerNs();
    const u64 last = loadShared(&guard.lastLook);
    // Signed: another thread may have looked after we read the clock.
    if (last != 0 && static_cast<i64>(now - last) < kLookEveryNs) return true;
    if (!exchangeShared(&guard.lastLook, last, now)) return true;  // another thread is looking
    if (last == 0) {
      storeShared(&guard.started, now);
      return true;
    }
    const u64 started = loadShared(&guard.started);
    const u64 timeout = team.timeoutNs ? team.timeoutNs : loadRelaxed(&team.control->timeoutNs);
    stop = loadRelaxed(&team.state->failed);
    if (loadRelaxed(&team.control->abort) != 0) {
      stop = kAborted;
    } else if (stop == kRunning && timeout != 0 && started != 0 &&
               static_cast<i64>(now - started) > static_cast<i64>(timeout)) {
      stop = kTimedOut;
    }
    if (stop == kRunning) return true;
    giveUp(team, guard, epoch, stop);
  }
  for (; missing != 0; missing &= missing - 1) {
    storeRelaxed(&team.report->waitedFor[lowestBit(missing)], epoch);
  }
  return false;
}

}  // namespace ctran::device
