#pragma once

#include "ctran/gpu/device/wait.cuh"

// The signals of windows of GPUs: kernels of one thread, behind and before the copies of their
// stream. How many have been sent, and waited for, is in memory, so captured launches stay valid.

namespace ctran::device {

enum : u32 { kEqual, kNotEqual, kLess, kLessOrEqual, kGreater, kGreaterOrEqual };

struct SignalArguments {
  u64* word;   ///< the receiver's
  u64* count;  ///< ours: how many it has been sent. Null: the word is set to `value`
  u64 value;
};

struct AwaitSignalArguments {
  const u64* word;  ///< ours, which the sender writes
  u64* count;       ///< ours: how many we have waited for. Null: the word is compared with `value`
  u64 value;
  u32 comparison;    ///< of the word with the value
  const u32* abort;  ///< the host's, not 0: give up. It sees to the time, too
};

/// The copies before it on the stream have ended, here and where they went.
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

/// What follows on the stream begins when this kernel has ended; what was acquired here comes
/// before it.
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
