#pragma once

#include "ctran/gpu/device/wait.cuh"

// The signals of windows of GPUs: kernels of one thread, behind and before the copies of their
// stream. The counts of signals sent and waited for are in memory, so captured launches stay valid.

namespace ctran::device {

enum : u32 { kEqual, kNotEqual, kLess, kLessOrEqual, kGreater, kGreaterOrEqual };

struct SignalArguments {
  u64* word;   ///< the receiver's word
  u64* count;  ///< our count of signals sent to it; null: the word is set to `value`
  u64 value;
};

struct AwaitSignalArguments {
  const u64* word;  ///< our word, which the sender writes
  u64* count;       ///< our count of signals waited for; null: the word is compared with `value`
  u64 value;
  u32 comparison;    ///< of the word with the value
  const u32* abort;  ///< in host memory; not 0: give up. The host checks the timeout, too
};

/// Sends a signal. The copies before it on the stream have ended, here and where they went.
CTRAN_INLINE void sendSignal(const SignalArguments& a, const Block& block) {
  if (block.globalThread() != 0) return;
  storeRelease(a.word, a.count != nullptr ? ++*a.count : a.value);
}

CTRAN_INLINE bool holds(u32 comparison, u64 word, u64 value) {
  switch (comparison) {
    case kEqual:
      return word == value;
    case kNotEqual:
      return word != value;
    case kLess:
      return word < value;
    case kLessOrEqual:
      return word <= value;
    case kGreater:
      return word > value;
    default:
      return word >= value;
  }
}

/// Waits for a signal. What follows on the stream begins after this kernel has ended, so it sees
/// what was acquired here.
CTRAN_INLINE void awaitSignal(const AwaitSignalArguments& a, const Block& block) {
  if (block.globalThread() != 0) return;
  const u64 target = a.count != nullptr ? ++*a.count : 0;
  const auto hasCome = [&] {
    const u64 word = loadAcquire(a.word);
    // A difference, so that counts may wrap around.
    if (a.count != nullptr) return static_cast<i64>(word - target) >= 0;
    return holds(a.comparison, word, a.value);
  };
  u64 lastLook = timerNs();
  for (u32 polls = 1; !hasCome(); ++polls) {
    if (polls % kPollsPerCheck != 0) continue;
    pauseOnHost();
    const u64 now = timerNs();
    if (static_cast<i64>(now - lastLook) < kLookEveryNs) continue;
    if (loadRelaxed(a.abort) != 0) return;
    lastLook = now;
  }
}

}  // namespace ctran::device

#ifdef CTRAN_SIGNALS
CTRAN_KERNEL(ctranSignal, SignalArguments, 32, (sendSignal(arguments, block)))
CTRAN_KERNEL(ctranAwaitSignal, AwaitSignalArguments, 32, (awaitSignal(arguments, block)))
#endif
