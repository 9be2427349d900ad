#pragma once

#include "ctran/gpu/device/operation.cuh"

// Flows: streams of steps of up to Team::stepBytes from one rank to another. The sender puts a step
// into the receiver's memory and raises the flow's `ready` flag there; the receiver, when it has
// used the step, raises the `credit` flag at the sender. Flags count steps, for ever; a step's slot
// is its number modulo kDepth, and is written again only after the credit of the step it held. So a
// flow is at rest between any two operations, whoever took part in them, and needs no barrier.
//
// A flow is driven by one block at each end. Data are published by the block's barrier and one
// thread's fence before the flag, and read past the first-level cache after an acquire of the flag
// and the block's barrier.

namespace ctran::device {

CTRAN_INLINE char* stepOf(const Team& team, u32 from, u32 to, u32 flow, u32 step) {
  return team.steps[to] +
         (static_cast<u64>(from * team.flows + flow) * kDepth + step % kDepth) * team.stepBytes;
}

CTRAN_INLINE u32* readyOf(const Team& team, u32 from, u32 to, u32 flow) {
  return team.flags[to] + (from * kMaxFlows + flow) * kFlagWords;
}

CTRAN_INLINE u32* creditOf(const Team& team, u32 from, u32 to, u32 flow) {
  return team.flags[from] + ((kMaxRanks + to) * kMaxFlows + flow) * kFlagWords;
}

/// What the first step of a message is labelled with: its bytes, and its tag.
CTRAN_INLINE Word16* labelOf(const Team& team, u32 from, u32 to, u32 flow, u32 step) {
  return reinterpret_cast<Word16*>(team.flags[to] + kFlags * kFlagWords) +
         (from * kMaxFlows + flow) * kDepth + step % kDepth;
}

/// How every kernel on flows begins; false: the communicator has failed, return.
CTRAN_INLINE bool enter(const Team& team, const Block& block) {
  const u32 failed = loadRelaxed(&team.state->failed);
  if (block.thread == 0) *block.guard = {};
  return block.all(failed == kRunning);
}

/// One thread: waits until `peer` has raised a flag to `count`. On failure the block's guard stops.
CTRAN_INLINE void awaitFlag(const Team& team, const Block& block, const u32* flag, u32 count,
                            u32 peer) {
  for (u32 polls = 1; static_cast<i32>(loadAcquire(flag) - count) < 0; ++polls) {
    if (polls % kPollsPerCheck == 0 &&
        !keepWaiting(team, block, nextEpoch(team.state->epoch[0]), 1u << peer)) {
      return;
    }
  }
}

/// The first of the threads that raise flags: not in the warp that waits for them, where there are
/// several, so that the fence and the next wait take place at the same time.
CTRAN_INLINE u32 publisherOf(const Block& block) { return block.threads > 32 ? 32 : 0; }

/// A barrier, after waits. False: one of them has failed, return.
CTRAN_INLINE bool goesOn(const Block& block) {
  return block.all(loadShared(&block.guard->stop) == kRunning);
}

// Users' buffers, of any alignment, in words of sixteen bytes.

template <class T>
struct Bytes {
  T* data;
  u64 count;
  bool aligned;
};

template <class T>
CTRAN_INLINE Bytes<T> bytesOf(T* data, u64 count) {
  return {data, count, reinterpret_cast<u64>(data) % 16 == 0};
}

/// Beyond the end there are zeros.
CTRAN_NOINLINE Word16 loadTail(const char* data, u64 count) {
  Word16 word = {};
  if (count >= 16 && reinterpret_cast<u64>(data) % 4 == 0) {
    for (u32 k = 0; k < 4; ++k) word.w[k] = reinterpret_cast<const u32*>(data)[k];
    return word;
  }
  for (u32 k = 0; k < 16 && k < count; ++k) {
    word.w[k / 4] |= static_cast<u32>(static_cast<u8>(data[k])) << k % 4 * 8;
  }
  return word;
}

CTRAN_NOINLINE void storeTail(char* data, u64 count, Word16 word) {
  if (count >= 16 && reinterpret_cast<u64>(data) % 4 == 0) {
    for (u32 k = 0; k < 4; ++k) reinterpret_cast<u32*>(data)[k] = word.w[k];
    return;
  }
  for (u32 k = 0; k < 16 && k < count; ++k) {
    data[k] = static_cast<char>(word.w[k / 4] >> k % 4 * 8);
  }
}

CTRAN_INLINE Word16 loadUser(const Bytes<const char>& bytes, u64 word) {
  const u64 at = word * 16;
  if (bytes.aligned && at + 16 <= bytes.count) {
    return *reinterpret_cast<const Word16*>(bytes.data + at);
  }
  return at < bytes.count ? loadTail(bytes.data + at, bytes.count - at) : Word16{};
}

CTRAN_INLINE void storeUser(const Bytes<char>& bytes, u64 word, const Word16& value) {
  const u64 at = word * 16;
  if (bytes.aligned && at + 16 <= bytes.count) {
    *reinterpret_cast<Word16*>(bytes.data + at) = value;
  } else if (at < bytes.count) {
    storeTail(bytes.data + at, bytes.count - at, value);
  }
}

/// By all threads of the block: `load(word)` to `store(word, value)` from word `first` on, several
/// words at a time.
template <class Load, class Store>
CTRAN_INLINE void forWords(const Block& block, u32 first, u32 words, const Load& load,
                           const Store& store) {
  constexpr u32 kAtOnce = 4;
  u32 i = first + block.thread;
  for (; i + (kAtOnce - 1) * block.threads < words; i += kAtOnce * block.threads) {
    Word16 values[kAtOnce];
    CTRAN_UNROLL
    for (u32 k = 0; k < kAtOnce; ++k) values[k] = load(i + k * block.threads);
    CTRAN_UNROLL
    for (u32 k = 0; k < kAtOnce; ++k) store(i + k * block.threads, values[k]);
  }
  for (; i < words; i += block.threads) store(i, load(i));
}

/// How many words of it can be read and written whole, without a look at each.
template <class T>
CTRAN_INLINE u32 wholeWords(const Bytes<T>& bytes) {
  return bytes.aligned ? static_cast<u32>(bytes.count / 16) : 0;
}

template <class T>
CTRAN_INLINE u32 wordsOf(const Bytes<T>& bytes) {
  return static_cast<u32>((bytes.count + 15) / 16);
}

/// By all threads of the block: a user's bytes to `store`.
template <class Store>
CTRAN_INLINE void readUser(const Block& block, const Bytes<const char>& from, const Store& store) {
  const Word16* words = reinterpret_cast<const Word16*>(from.data);
  const u32 whole = wholeWords(from);
  forWords(
      block, 0, whole, [&](u32 i) { return words[i]; }, store);
  forWords(
      block, whole, wordsOf(from), [&](u32 i) { return loadUser(from, i); }, store);
}

/// What `load` gives, to a user's bytes, and to `also`.
template <class Load, class Also>
CTRAN_INLINE void writeUser(const Block& block, const Bytes<char>& to, const Load& load,
                            const Also& also) {
  Word16* words = reinterpret_cast<Word16*>(to.data);
  const u32 whole = wholeWords(to);
  const auto store = [&](u32 i, const Word16& v) {
    words[i] = v;
    also(i, v);
  };
  forWords(block, 0, whole, load, store);
  forWords(block, whole, wordsOf(to), load, [&](u32 i, const Word16& v) {
    storeUser(to, i, v);
    also(i, v);
  });
}

template <class Load>
CTRAN_INLINE void writeUser(const Block& block, const Bytes<char>& to, const Load& load) {
  writeUser(block, to, load, [](u32, const Word16&) {});
}

/// As many bytes of one user's buffer to another.
CTRAN_INLINE void copyUser(const Block& block, const Bytes<const char>& from,
                           const Bytes<char>& to) {
  const Word16* words = reinterpret_cast<const Word16*>(from.data);
  const u32 whole = to.aligned ? wholeWords(from) : 0;
  forWords(
      block, 0, whole, [&](u32 i) { return words[i]; },
      [&](u32 i, const Word16& v) { reinterpret_cast<Word16*>(to.data)[i] = v; });
  forWords(
      block, whole, wordsOf(from), [&](u32 i) { return loadUser(from, i); },
      [&](u32 i, const Word16& v) { storeUser(to, i, v); });
}

/// As `forWords`, for the other ranks, which are `step` = 1 ... kRanks - 1 away, at once.
template <u32 kRanks, class Load, class Store>
CTRAN_INLINE void forPeers(const Block& block, u32 words, const Load& load, const Store& store) {
  constexpr u32 kAtOnce = kRanks <= 2 ? 8 : kRanks <= 4 ? 4 : 2;
  for (u32 i = block.thread; i < words; i += kAtOnce * block.threads) {
    Word16 values[kAtOnce][kRanks];
    CTRAN_UNROLL
    for (u32 k = 0; k < kAtOnce; ++k) {
      CTRAN_UNROLL
      for (u32 step = 1; step < kRanks; ++step) {
        if (i + k * block.threads < words) values[k][step] = load(step, i + k * block.threads);
      }
    }
    CTRAN_UNROLL
    for (u32 k = 0; k < kAtOnce; ++k) {
      CTRAN_UNROLL
      for (u32 step = 1; step < kRanks; ++step) {
        if (i + k * block.threads < words) store(step, i + k * block.threads, values[k][step]);
      }
    }
  }
}

}  // namespace ctran::device
