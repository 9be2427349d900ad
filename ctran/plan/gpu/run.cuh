#pragma once

#include "ctran/gpu/device/lane.cuh"
#include "ctran/gpu/device/reduce.cuh"
#include "ctran/gpu/device/wait.cuh"

// What the kernels of plans are made of; plan/gpu/kernel.cpp writes the rest, step by step. A block
// runs one lane on one slice of the data. Slices know nothing of each other: every slice has its
// own signals and its own piece of every chunk of scratch, so blocks of a lane never meet.

namespace ctran::device {

/// What a kernel of a plan is given besides the user's buffers. Addresses and contents of this stay
/// the same from launch to launch, so that captured launches stay valid; what changes is memory.
struct PlanTeam {
  Team team;                ///< `scratch[r]`: chunks of scratch of rank r, by copy, then by slice
  u32* signals[kMaxRanks];  ///< of rank r: [channel that ends there][slice], from 0
  u64* executions;          ///< in our memory: [lane][slice], how often it has run, from 0
  u64 unitBytes;            ///< of a chunk, in each slice; a multiple of 16
};

/// What a kernel is launched with: the user's buffers, and the elements of a block.
struct PlanArguments {
  PlanTeam plan;
  const void* input;
  void* output;
  u64 count;
};

/// As in ctran::plan::Plan.
struct PlanShape {
  u32 lanes;
  u32 chunks;
  u32 scratch;
  u32 depth;
};

/// A wait for a signal. Counters hold how many signals there have been: `each` per execution; the
/// one that is waited for is number `number` of its execution, or, below 1, of an earlier one.
struct PlanWait {
  u32 channel;  ///< among those that end here
  u32 from;     ///< rank
  u32 each;
  i32 number;
};

/// A signal: the `number`th of an execution, from 1.
struct PlanSignal {
  u32 to;       ///< rank
  u32 channel;  ///< among those that end there
  u32 each;
  i32 number;
};

/// A lane, on one slice, from execution to execution.
template <class Element, class Op>
class PlanRun {
 public:
  PlanRun(const PlanTeam& plan, const PlanShape& shape, const Block& block, const Element* input,
          Element* output, u64 count)
      : plan_(plan),
        shape_(shape),
        block_(block),
        input_(input),
        output_(output),
        count_(count),
        slice_(block.index / shape.lanes),
        slices_(block.count / shape.lanes),
        perPart_(roundUp((count + shape.chunks - 1) / shape.chunks)),
        perSlice_(roundUp((perPart_ + slices_ - 1) / slices_)),
        unit_(plan.unitBytes / sizeof(Element)),
        units_((perSlice_ + unit_ - 1) / unit_),
        counter_(plan.executions + (block.index % shape.lanes) * slices_ + slice_) {}

  u32 lane() const { return block_.index % shape_.lanes; }

  /// False: the communicator has failed; return. Ends with a barrier of the block.
  CTRAN_INLINE bool begin() {
    first_ = *counter_;
    if (block_.thread == 0) {
      *block_.guard = {};
      block_.guard->stop = loadRelaxed(&plan_.team.state->failed);
    }
    block_.sync();
    const bool runs = loadShared(&block_.guard->stop) == kRunning;
    block_.sync();
    return runs;
  }
  CTRAN_INLINE bool hasUnit() const { return now_ < units_; }
  CTRAN_INLINE void next() { ++now_; }
  CTRAN_INLINE void end() {
    block_.sync();
    if (block_.thread == 0) *counter_ = first_ + units_;
  }

  /// False: the communicator has failed; return. All threads of the block see what came before the
  /// signals: one of them has acquired it, and they have met since. They have to meet once more
  /// before they wait again, so that all have seen how this ended; `move` and `meet` do that.
  template <u32 kWaits>
  CTRAN_INLINE bool wait(const PlanWait (&waits)[kWaits]) {
    for (u32 w = block_.thread; w < kWaits; w += block_.threads) {
      const PlanWait& wait = waits[w];
      const u32* counter = &plan_.signals[plan_.team.rank][wait.channel * slices_ + slice_];
      const u32 target = static_cast<u32>(execution() * wait.each) + wait.number;
      // A difference, so that counters may wrap around.
      for (u32 polls = 1; static_cast<i32>(loadAcquire(counter) - target) < 0; ++polls) {
        if (polls % kPollsPerCheck == 0 &&
            !keepWaiting(plan_.team, block_, static_cast<u32>(first_) + 1, 1u << wait.from)) {
          break;
        }
      }
    }
    block_.sync();
    return loadShared(&block_.guard->stop) == kRunning;
  }

  CTRAN_INLINE void meet() { block_.sync(); }

  /// What the threads of the block have moved so far comes before the signals: they have met since,
  /// and each signal releases it.
  template <u32 kSignals>
  CTRAN_INLINE void signal(const PlanSignal (&signals)[kSignals]) {
    // Not the warp that waits, where there are several: its next wait need not be after the fences.
    const u32 first = publisherOf(block_);
    for (u32 s = block_.thread - first; s < kSignals; s += block_.threads - first) {
      const PlanSignal& signal = signals[s];
      storeRelease(&plan_.signals[signal.to][signal.channel * slices_ + slice_],
                   static_cast<u32>(execution() * signal.each) + signal.number);
    }
  }

  CTRAN_INLINE const Element* input(u32 chunk) const { return input_ + at(chunk); }
  CTRAN_INLINE Element* output(u32 chunk) const { return output_ + at(chunk); }
  CTRAN_INLINE Element* scratch(u32 rank, u32 chunk) const {
    const u64 slot = execution() % shape_.depth * shape_.scratch + chunk;
    return reinterpret_cast<Element*>(plan_.team.scratch[rank] +
                                      (slot * slices_ + slice_) * plan_.unitBytes);
  }

  /// Stores the reduction of `from`, in that order, in all of `to`; these hold part `part` of a
  /// block. `kWhole`: of all ranks, so that an average divides. Ends with a barrier of the block.
  template <bool kWhole, u32 kTo, u32 kFrom>
  CTRAN_NOINLINE void move(u32 part, Element* const (&to)[kTo],
                           const Element* const (&from)[kFrom]) {
    static_assert(!kScales<Op>, "plans have no place to scale contributions");
    constexpr u32 kPer = sizeof(Word16) / sizeof(Element);
    const u64 n = elements(part);
    u64 addresses = 0;
    CTRAN_UNROLL
    for (u32 k = 0; k < kTo; ++k) addresses |= reinterpret_cast<u64>(to[k]);
    CTRAN_UNROLL
    for (u32 k = 0; k < kFrom; ++k) addresses |= reinterpret_cast<u64>(from[k]);
    const u64 wide = addresses % sizeof(Word16) == 0 ? n / kPer : 0;
    // All loads of a turn before its stores, which the compiler must take for stores to the same
    // memory: else a thread would wait for each word in turn.
    constexpr u32 kAtOnce = kFrom == 1 ? 8 : kFrom == 2 ? 4 : kFrom <= 4 ? 2 : 1;
    for (u64 i = block_.thread; i < wide; i += kAtOnce * block_.threads) {
      Word16 sources[kAtOnce][kFrom];
      CTRAN_UNROLL
      for (u32 a = 0; a < kAtOnce; ++a) {
        const u64 word = i + a * block_.threads;
        CTRAN_UNROLL
        for (u32 k = 0; k < kFrom; ++k) {
          if (word < wide) sources[a][k] = reinterpret_cast<const Word16*>(from[k])[word];
        }
      }
      CTRAN_UNROLL
      for (u32 a = 0; a < kAtOnce; ++a) {
        const u64 word = i + a * block_.threads;
        if (word >= wide) break;
        Word16 result = sources[a][0];
        if constexpr (kFrom > 1) result = reducedWords<kWhole>(sources[a]);
        CTRAN_UNROLL
        for (u32 k = 0; k < kTo; ++k) reinterpret_cast<Word16*>(to[k])[word] = result;
      }
    }
    for (u64 i = wide * kPer + block_.thread; i < n; i += block_.threads) {
      Element values[kFrom];
      CTRAN_UNROLL
      for (u32 k = 0; k < kFrom; ++k) values[k] = from[k][i];
      Element result = values[0];
      if constexpr (kFrom > 1) result = reduced<kWhole>(values);
      CTRAN_UNROLL
      for (u32 k = 0; k < kTo; ++k) to[k][i] = result;
    }
    block_.sync();
  }

 private:
  template <bool kWhole, u32 kFrom>
  CTRAN_INLINE Word16 reducedWords(const Word16 (&sources)[kFrom]) const {
    Word16 result = {};
    CTRAN_UNROLL
    for (u32 e = 0; e < sizeof(Word16) / sizeof(Element); ++e) {
      Element values[kFrom];
      CTRAN_UNROLL
      for (u32 k = 0; k < kFrom; ++k) values[k] = extract<Element>(sources[k], e);
      insert<Element>(result, e, reduced<kWhole>(values));
    }
    return result;
  }

  template <bool kWhole, u32 kFrom>
  CTRAN_INLINE Element reduced(const Element (&values)[kFrom]) const {
    using W = Wide<Element>;
    W sum = widen(values[0]);
    CTRAN_UNROLL
    for (u32 k = 1; k < kFrom; ++k) sum = Op::combine(sum, static_cast<W>(widen(values[k])));
    if constexpr (kDivides<Op> && kWhole) sum = sum / static_cast<W>(plan_.team.size);
    Element result;
    narrow(sum, result);
    return result;
  }

  static CTRAN_INLINE u64 roundUp(u64 elements) {
    constexpr u64 kPer = sizeof(Word16) / sizeof(Element);
    return (elements + kPer - 1) / kPer * kPer;
  }
  static CTRAN_INLINE u64 least(u64 a, u64 b) { return a < b ? a : b; }

  CTRAN_INLINE u64 execution() const { return first_ + now_; }

  /// Where this unit of a chunk begins in a user's buffer.
  CTRAN_INLINE u64 at(u32 chunk) const {
    return chunk / shape_.chunks * count_ + chunk % shape_.chunks * perPart_ + slice_ * perSlice_ +
           now_ * unit_;
  }
  /// How many elements of the part belong to this unit of this slice.
  CTRAN_INLINE u64 elements(u32 part) const {
    const u64 begin = slice_ * perSlice_ + now_ * unit_;
    const u64 end = least(least((slice_ + 1) * perSlice_, begin + unit_), perPart_);
    const u64 before = part * perPart_;
    const u64 last = least(before + end, count_);
    return begin < end && before + begin < last ? last - before - begin : 0;
  }

  const PlanTeam& plan_;
  const PlanShape shape_;
  const Block& block_;
  const Element* const input_;
  Element* const output_;
  const u64 count_;
  const u32 slice_, slices_;
  const u64 perPart_, perSlice_, unit_, units_;
  u64* const counter_;
  u64 first_ = 0;  ///< executions before this kernel
  u64 now_ = 0;    ///< units of this one that are done
};

}  // namespace ctran::device
