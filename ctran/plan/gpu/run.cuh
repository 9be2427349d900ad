#pragma once

#include "ctran/gpu/device/flow.cuh"
#include "ctran/gpu/device/packet.cuh"
#include "ctran/gpu/device/reduce.cuh"
#include "ctran/gpu/device/symmetric.cuh"
#include "ctran/gpu/device/wait.cuh"

// What the kernels of plans are made of; plan/gpu/kernel.cpp writes the rest, step by step. A block
// runs one lane on one slice of the data. Slices know nothing of each other: every slice has its
// own signals and its own piece of every chunk of scratch, so blocks of a lane never meet. A launch
// has as many slices as its data are worth.

#ifndef CTRAN_PLAN_STEP
#define CTRAN_PLAN_STEP CTRAN_NOINLINE
#endif

namespace ctran::device {

/// What a kernel of a plan is given besides the user's buffers. Addresses and contents of this stay
/// the same from launch to launch, so that captured launches stay valid; what changes is memory.
struct PlanTeam {
  Team team;                ///< `scratch[r]`: chunks of scratch of rank r, by copy, then by slice
  u32* signals[kMaxRanks];  ///< of rank r: [channel that ends there][slice], from 0
  u64* executions;          ///< in our memory: [lane][slice], how often it has run, from 0
  u64 unitBytes;            ///< of a chunk, in each slice; a multiple of 16
  u32 slices;               ///< that memory is for
};

/// What a kernel is launched with: the user's buffers, and the elements of a block. A plan in which
/// ranks reach each other's buffers comes in two forms, see `reachOthers`.
struct PlanArguments {
  PlanTeam plan;
  const void* input;
  void* output;
  u64 count;
  PlanTeam direct;  ///< for the form that reaches them
  u64 offers[2];    ///< where all ranks have input and output mapped, if they have: see `placed`
  Word16*
      mail[kMaxRanks];  ///< of rank r: [block][launch % 2][from rank][input, output], as packets
  u64* launches;        ///< in our memory: [block], how many there have been, from 0
};

/// The buffers of all ranks' callers, as mapped here.
struct PlanReach {
  const char* inputs[kMaxRanks];
  char* outputs[kMaxRanks];
};

/// A place as one word; 0: nowhere.
CTRAN_INLINE constexpr u64 placed(const Place& place) {
  return place.segment == 0 ? 0 : static_cast<u64>(place.segment) << 48 | place.offset;
}

enum class Reached : u32 { Failed, Staged, Direct };

/// Ranks tell each other where their buffers are. Direct: all ranks have those mapped that the plan
/// reaches, which are in `reach` then; all blocks of all ranks get the same answer. Failed: the
/// communicator has; return. Whoever has heard of a rank knows that its kernel has begun, so that
/// its buffers hold what they are to. Two turns of mail are enough: who begins launch n + 2 has
/// heard that the others have begun n + 1, and so have read what came for n.
template <bool kInput, bool kOutput>
CTRAN_INLINE Reached reachOthers(const PlanArguments& arguments, const Block& block,
                                 PlanReach& reach) {
  constexpr bool kReaches[2] = {kInput, kOutput};
  const Team& team = arguments.plan.team;
  const u64 launch = arguments.launches[block.index];
  const u32 flag = static_cast<u32>(launch % 0xffffffffu) + 1;
  const auto slot = [&](u32 at, u32 from, u32 which) {
    const u64 turn = block.index * 2 + launch % 2;
    return arguments.mail[at] + (turn * kMaxRanks + from) * 2 + which;
  };
  if (block.thread == 0) *block.guard = {};
  block.sync();
  bool ok = loadRelaxed(&team.state->failed) == kRunning;
  for (u32 which = 0; which < 2; ++which) {
    for (u32 peer = block.thread; peer < team.size; peer += block.threads) {
      if (peer == team.rank || !kReaches[which]) continue;
      storeHalves(slot(peer, team.rank, which), flag, arguments.offers[which]);
    }
  }
  u64 offer = 0;
  for (u32 which = 0; which < 2; ++which) {
    for (u32 peer = block.thread; peer < team.size; peer += block.threads) {
      if (peer == team.rank || !kReaches[which]) continue;
      for (u32 polls = 1; ok && !loadHalves(slot(team.rank, peer, which), flag, offer); ++polls) {
        ok = polls % kPollsPerCheck != 0 || keepWaiting(team, block, flag, 1u << peer);
      }
    }
  }
  if (!block.all(ok)) return Reached::Failed;
  if (block.thread == 0) arguments.launches[block.index] = launch + 1;
  bool all = true;
  const auto mapped = [&](u32 rank, u32 which) -> char* {
    if (!kReaches[which]) return nullptr;
    u64 there = arguments.offers[which];
    if (rank != team.rank) loadHalves(slot(team.rank, rank, which), flag, there);
    all &= there != 0;
    if (there == 0) return nullptr;
    if (rank == team.rank) {
      return which == 0 ? const_cast<char*>(static_cast<const char*>(arguments.input))
                        : static_cast<char*>(arguments.output);
    }
    const u64 base = loadRelaxed(&team.state->mapped[rank][(there >> 48) - 1]);
    return reinterpret_cast<char*>(base + (there & ((u64{1} << 48) - 1)));
  };
  CTRAN_UNROLL
  for (u32 rank = 0; rank < kMaxRanks; ++rank) {
    if (rank >= team.size) break;
    reach.inputs[rank] = mapped(rank, 0);
    reach.outputs[rank] = mapped(rank, 1);
  }
  return all ? Reached::Direct : Reached::Staged;
}

struct alignas(8) Word8 {
  u32 w[2];
};

/// As in ctran::plan::Plan.
struct PlanShape {
  u32 lanes;
  u32 chunks;
  u32 scratch;
  u32 depth;
  bool packets;  ///< scratch holds packets
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
          Element* output, u64 count, const PlanReach& reach)
      : plan_(plan),
        reach_(reach),
        shape_(shape),
        block_(block),
        input_(input),
        output_(output),
        count_(count),
        slice_(block.index / shape.lanes),
        slices_(block.count / shape.lanes),
        perPart_(roundUp(ceilDiv(count, shape.chunks))),
        perSlice_(roundUp(ceilDiv(perPart_, slices_))),
        unit_(shape.scratch != 0 ? plan.unitBytes / (shape.packets ? 2 : 1) / sizeof(Element)
                                 : perSlice_ + (perSlice_ == 0 ? 1 : 0)),
        units_(ceilDiv(perSlice_, unit_)),
        counter_(plan.executions + (block.index % shape.lanes) * plan.slices + slice_) {}

  u32 lane() const { return block_.index % shape_.lanes; }

  /// False: the communicator has failed; return. Ends with a barrier of the block.
  CTRAN_INLINE bool begin() {
    first_ = *counter_;
    if (block_.thread == 0) *block_.guard = {};
    return block_.all(loadRelaxed(&plan_.team.state->failed) == kRunning);
  }
  /// Once in 2^30 executions. The flags of packets have 32 bits: what was left of longer messages
  /// would be taken for a new packet when they come round.
  CTRAN_INLINE bool isAging() const { return first_ >> 30 != (first_ + units_) >> 30; }
  /// Takes the flags off old packets in a chunk of our scratch. New ones may come meanwhile.
  CTRAN_PLAN_STEP void forget(u32 chunk) {
    const u64 slots = plan_.unitBytes / sizeof(Word16);
    for (u32 copy = 0; copy < shape_.depth; ++copy) {
      const u64 unit = (u64{copy} * shape_.scratch + chunk) * plan_.slices + slice_;
      auto* const packets =
          reinterpret_cast<Word16*>(plan_.team.scratch[plan_.team.rank] + unit * plan_.unitBytes);
      for (u64 i = block_.thread; i < slots; i += block_.threads) {
        forgetHalves(packets + i, flagOf(first_));
      }
    }
  }
  CTRAN_INLINE bool hasUnit() const { return now_ < units_; }
  CTRAN_INLINE void next() { ++now_; }
  /// Whether this kernel has no further unit.
  CTRAN_INLINE bool isLast() const { return now_ + 1 == units_; }
  /// All threads have read the counter: they have met since.
  CTRAN_INLINE void end() {
    if (block_.thread == 0) *counter_ = first_ + units_;
  }

  /// False: the communicator has failed; return. All threads of the block see what came before the
  /// signals: one of them has acquired it, and they have met since. They have to meet once more
  /// before they wait again, so that all have seen how this ended; `move` and `meet` do that.
  template <u32 kWaits>
  CTRAN_INLINE bool wait(const PlanWait (&waits)[kWaits]) {
    for (u32 w = block_.thread; w < kWaits; w += block_.threads) {
      const PlanWait& wait = waits[w];
      const u32* counter = &plan_.signals[plan_.team.rank][wait.channel * plan_.slices + slice_];
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
  /// As after steps of packets that end with a barrier.
  CTRAN_INLINE bool met() { return block_.all(ok_); }

  /// What the threads of the block have moved so far comes before the signals: they have met since,
  /// and each signal releases it.
  template <u32 kSignals>
  CTRAN_INLINE void signal(const PlanSignal (&signals)[kSignals]) {
    // Not the warp that waits, where there are several: its next wait need not be after the fences.
    const u32 first = publisherOf(block_);
    for (u32 s = block_.thread - first; s < kSignals; s += block_.threads - first) {
      const PlanSignal& signal = signals[s];
      storeRelease(&plan_.signals[signal.to][signal.channel * plan_.slices + slice_],
                   static_cast<u32>(execution() * signal.each) + signal.number);
    }
  }

  /// As `signal`; but of the last unit, for which nobody waits any more before the kernel ends. The
  /// threads need not have met.
  template <u32 kSignals>
  CTRAN_INLINE void close(const PlanSignal (&signals)[kSignals]) {
    if (!isLast()) {
      meet();
      return signal(signals);
    }
    for (u32 s = block_.thread; s < kSignals; s += block_.threads) {
      const PlanSignal& signal = signals[s];
      storeRelaxed(&plan_.signals[signal.to][signal.channel * plan_.slices + slice_],
                   static_cast<u32>(execution() * signal.each) + signal.number);
    }
  }

  CTRAN_INLINE const Element* input(u32 chunk) const { return input_ + at(chunk); }
  CTRAN_INLINE Element* output(u32 chunk) const { return output_ + at(chunk); }
  CTRAN_INLINE const Element* inputOf(u32 rank, u32 chunk) const {
    return reinterpret_cast<const Element*>(reach_.inputs[rank]) + at(chunk);
  }
  CTRAN_INLINE Element* outputOf(u32 rank, u32 chunk) const {
    return reinterpret_cast<Element*>(reach_.outputs[rank]) + at(chunk);
  }
  CTRAN_INLINE Element* scratch(u32 rank, u32 chunk) const {
    const u64 slot = execution() % shape_.depth * shape_.scratch + chunk;
    return reinterpret_cast<Element*>(plan_.team.scratch[rank] +
                                      (slot * plan_.slices + slice_) * plan_.unitBytes);
  }

  /// Stores the reduction of `from`, in that order, in all of `to`; these hold part `part` of a
  /// block. `kWhole`: of all ranks, so that an average divides. Ends with a barrier of the block.
  template <bool kWhole, u32 kTo, u32 kFrom>
  CTRAN_PLAN_STEP void move(u32 part, Element* const (&to)[kTo],
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

  /// The same where some of the places hold packets: bit k of `kToPackets` says so of to[k]. Waits
  /// for those that it reads, each thread for its own; writers[k] is who writes those of from[k].
  /// `kFenced`: also what packets do not hold has to be seen by who gets them, and what their
  /// writers had seen is seen here. `kMeets`: ends with a barrier of the block, and false: the
  /// communicator has failed; return. Without it each thread goes on with the same places of
  /// chunks, as in all steps of packets; once the communicator has failed these do nothing. That is
  /// right where all parts, and all units of a kernel, are of one size: a thread that had nothing
  /// to wait for in a smaller one would overwrite what has not been read.
  template <bool kWhole, bool kFenced, bool kMeets, u32 kToPackets, u32 kFromPackets, u32 kTo,
            u32 kFrom>
  CTRAN_PLAN_STEP bool packets(u32 part, Element* const (&to)[kTo],
                               const Element* const (&from)[kFrom], const u32 (&writers)[kFrom]) {
    static_assert(!kScales<Op>, "plans have no place to scale contributions");
    // A packet holds eight bytes; an element of sixteen takes two.
    constexpr u32 kSlots = sizeof(Element) > sizeof(u64) ? 2 : 1;
    constexpr u32 kPer = kSlots * sizeof(u64) / sizeof(Element);
    const u64 n = elements(part);
    // Of an empty part, too, there is one: it says that its writer has come that far.
    const u64 count = n == 0 ? 1 : (n + kPer - 1) / kPer;
    const u32 flag = flagOf(execution());
    if constexpr (kFenced && kToPackets != 0) fenceSystem();
    for (u64 i = block_.thread; ok_ && i < count; i += block_.threads) {
      const u64 first = i * kPer;
      const auto valid = static_cast<u32>(least(kPer, n - first));
      Word16 sources[kFrom] = {};
      CTRAN_UNROLL
      for (u32 k = 0; k < kFrom; ++k) {
        if ((kFromPackets >> k & 1) == 0) readPart(from[k] + first, valid, sources[k]);
      }
      // All at once: one after the other, each would take as long as the first.
      for (u32 polls = 1; kFromPackets != 0; ++polls) {
        u32 missing = 0;
        CTRAN_UNROLL
        for (u32 k = 0; k < kFrom; ++k) {
          if ((kFromPackets >> k & 1) == 0) continue;
          CTRAN_UNROLL
          for (u32 h = 0; h < kSlots; ++h) {
            const Word16* slot = reinterpret_cast<const Word16*>(from[k]) + i * kSlots + h;
            u64 payload = 0;
            if (!loadHalves(slot, flag, payload)) missing |= 1u << writers[k];
            sources[k].w[2 * h] = static_cast<u32>(payload);
            sources[k].w[2 * h + 1] = static_cast<u32>(payload >> 32);
          }
        }
        if (missing == 0) break;
        if (polls % kPollsPerCheck != 0) continue;
        ok_ = keepWaiting(plan_.team, block_, static_cast<u32>(first_) + 1, missing);
        if (!ok_) break;
      }
      if (!ok_) break;
      Word16 result = sources[0];
      if constexpr (kFrom > 1) {
        result = {};
        CTRAN_UNROLL
        for (u32 e = 0; e < kPer; ++e) {
          Element values[kFrom];
          CTRAN_UNROLL
          for (u32 k = 0; k < kFrom; ++k) values[k] = extract<Element>(sources[k], e);
          insert<Element>(result, e, reduced<kWhole>(values));
        }
      }
      CTRAN_UNROLL
      for (u32 k = 0; k < kTo; ++k) {
        if ((kToPackets >> k & 1) != 0) {
          CTRAN_UNROLL
          for (u32 h = 0; h < kSlots; ++h) {
            storeHalves(reinterpret_cast<Word16*>(to[k]) + i * kSlots + h, flag,
                        result.w[2 * h] | static_cast<u64>(result.w[2 * h + 1]) << 32);
          }
        } else {
          writePart(to[k] + first, valid, result);
        }
      }
    }
    if constexpr (kFenced && kFromPackets != 0) fenceSystem();
    return !kMeets && isEven() ? true : block_.all(ok_);
  }

 private:
  static CTRAN_INLINE u32 flagOf(u64 execution) {
    return static_cast<u32>(execution % 0xffffffffu) + 1;
  }

  /// The elements of one packet: in one access where they lie so, and are all there.
  static CTRAN_INLINE void readPart(const Element* from, u32 valid, Word16& to) {
    if (isWhole(from, valid)) {
      const auto* const words = reinterpret_cast<const Word8*>(from);
      const Word8 word = *words;
      to.w[0] = word.w[0];
      to.w[1] = word.w[1];
      return;
    }
    for (u32 e = 0; e < valid; ++e) insert<Element>(to, e, from[e]);
  }
  static CTRAN_INLINE void writePart(Element* to, u32 valid, const Word16& from) {
    if (isWhole(to, valid)) {
      *reinterpret_cast<Word8*>(to) = {{from.w[0], from.w[1]}};
      return;
    }
    for (u32 e = 0; e < valid; ++e) to[e] = extract<Element>(from, e);
  }
  static CTRAN_INLINE bool isWhole(const Element* at, u32 valid) {
    return sizeof(Element) <= sizeof(Word8) && valid == sizeof(Word8) / sizeof(Element) &&
           reinterpret_cast<u64>(at) % sizeof(Word8) == 0;
  }

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

  /// A GPU divides by 64 bits slowly.
  static CTRAN_INLINE u64 ceilDiv(u64 a, u64 b) {
    const u64 most = a + b - 1;
    if ((most | b) >> 32 == 0) return static_cast<u32>(most) / static_cast<u32>(b);
    return most / b;
  }
  static CTRAN_INLINE u64 roundUp(u64 elements) {
    constexpr u64 kPer = sizeof(Word16) / sizeof(Element);
    return (elements + kPer - 1) / kPer * kPer;
  }
  static CTRAN_INLINE u64 least(u64 a, u64 b) { return a < b ? a : b; }

  CTRAN_INLINE u64 execution() const { return first_ + now_; }
  /// The parts of all units are of one size.
  CTRAN_INLINE bool isEven() const {
    const bool parts = shape_.chunks == 1 || perPart_ * shape_.chunks == count_;
    return parts && (units_ == 1 || (perSlice_ * slices_ == count_ / shape_.chunks &&
                                     units_ * unit_ == perSlice_));
  }

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
  const PlanReach& reach_;
  const PlanShape shape_;
  const Block& block_;
  const Element* const input_;
  Element* const output_;
  const u64 count_;
  const u32 slice_, slices_;
  const u64 perPart_, perSlice_, unit_, units_;
  u64* const counter_;
  u64 first_ = 0;   ///< executions before this kernel
  u64 now_ = 0;     ///< units of this one that are done
  bool ok_ = true;  ///< of this thread: what it has waited for has come
};

}  // namespace ctran::device
