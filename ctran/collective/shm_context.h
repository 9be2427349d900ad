#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "ctran/collective/blocks.h"
#include "ctran/collective/collective.h"
#include "ctran/collective/mismatch.h"
#include "ctran/collective/store_choice.h"
#include "ctran/collective/task.h"
#include "ctran/memory/prefetch.h"
#include "ctran/memory/stream_copy.h"
#include "ctran/reduce/reduce.h"
#include "ctran/trace/recording.h"
#include "ctran/transport/shm/arena.h"

namespace ctran {

/// Data of another rank that this rank reads, and where it puts it.
struct Reading {
  const std::byte* from;
  std::byte* to;
  size_t bytes;
};

/// What the shared-memory collectives of one communicator work with: its arena, and this rank's
/// counters. The members keep the rules of slots and rounds, see Arena.
class ShmContext {
 public:
  explicit ShmContext(Arena& arena) : arena(arena), rank(arena.rank()), size(arena.size()) {}

  Arena& arena;
  const int rank;
  const int size;
  FrameMemory frame;

  // --- Slots: the smallest contributions --------------------------------------------------------

  /// Starts the next collective, and publishes that all before it have ended.
  void begin(const Collective& collective);
  /// Starts a step, on this host, of a collective of several hosts. `board` keeps the records of
  /// that collective.
  void beginStep(Board& board, const OperationRecord& record);
  /// Ends the collective.
  void end();
  /// Is called by a rank that publishes nothing else: a root that is as far ahead as slots allow
  /// waits until this rank has begun.
  void tellBegun() { arena.published(); }

  uint64_t sequence() const { return sequence_; }

  /// Holds when the slot of this collective may be written.
  Condition slotFree() {
    const uint64_t need = sequence_ < Arena::kSlots ? 0 : sequence_ - Arena::kSlots + 1;
    return known(allBegun_, arena.allBegun(need));
  }
  std::byte* slotData() { return arena.slot(rank, sequence_).data; }
  /// Publishes the slot: its data, what this rank has put into its ring, and that this rank is here
  /// with this signature.
  void publishSlot() {
    if (streams_) streamFence();
    Arena::Slot& slot = arena.slot(rank, sequence_);
    slot.signature = signature_;
    slot.sequence.store(sequence_, std::memory_order_release);
    arena.published();
    if (expectsSlot()) prefetchForWrite(&arena.slot(rank, sequence_ + 1));
  }
  /// Has the memory ready in which a contribution of that size would lie in the next collective, as
  /// such calls often come one after another. In collectives with a root a rank runs ahead of
  /// others, and would take lines that these are about to read.
  void expectAnother(size_t bytes) const {
    constexpr size_t kFirst = kCacheLine - offsetof(Arena::Slot, data);  // publishSlot's line
    if (bytes > Arena::kSlotDataBytes) {
      if (!isRooted_ && !streams_) prefetchForWrite(arena.ring(rank, nextFirst()), bytes);
    } else if (bytes > kFirst && expectsSlot()) {
      prefetchForWrite(arena.slot(rank, sequence_ + 1).data + kFirst, bytes - kFirst);
    }
  }
  Condition allArrived() { return arena.allArrived(sequence_); }
  Condition arrived(int peer) { return arena.arrived(peer, sequence_); }
  /// Returns what an arrived peer put into its slot. Throws Error(Mismatch) if the peer is in
  /// another collective.
  const std::byte* slotOf(int peer) {
    const Arena::Slot& slot = arena.slot(peer, sequence_);
    if (slot.signature != signature_) throwOther(peer);
    if (isRooted_) {  // then peers may be ahead: a cache-line transfer less in the next one
      const Arena::Slot& next = arena.slot(peer, sequence_ + 1);
      __builtin_prefetch(&next);
      __builtin_prefetch(next.data + 64 - offsetof(Arena::Slot, data));
    }
    return slot.data;
  }
  /// Calls slotOf for every rank; for collectives in which all ranks wait for all.
  void checkAll() {
    for (int r = 0; r < size; ++r) slotOf(r);
    allBegun_ = sequence_;
  }

  // --- The ring: larger contributions, at once or in rounds -------------------------------------

  /// Takes the next part of all rings, for `rounds` rounds of up to `bytes` each. Both are the same
  /// on all ranks.
  void beginRounds(uint64_t rounds, size_t bytes) {
    stride_ = std::bit_ceil(std::max<size_t>(bytes, 64));
    first_ = nextFirst();
    position_ = first_ + rounds * stride_;
  }
  /// Takes the next part of all rings as one piece of memory, up to a whole ring; it is `bufferOf`
  /// round 0. `endRounds` gives it back.
  void beginScratch(size_t bytes) {
    if (!hasRing_) populateRing();
    const uint64_t before = position_;
    beginRounds(1, bytes);
    // The bytes that were skipped to begin at a multiple belong to no rank; all may have drained
    // only up to them.
    const uint64_t end = endOf(0);
    scratchAfter_ = std::min(before, end < Arena::kRingBytes ? 0 : end - Arena::kRingBytes);
  }
  /// Holds when no rank uses any more what was in the memory before.
  Condition scratchFree() { return known(allDrained_, arena.allDrained(scratchAfter_)); }
  /// Says that this rank will not touch the rounds any more.
  void endRounds() { drain(position_); }

  /// Holds when the ring may be written at `round`.
  Condition roundFree(uint64_t round) {
    if (!hasRing_) populateRing();
    const uint64_t end = endOf(round);
    return known(allDrained_,
                 arena.allDrained(end < Arena::kRingBytes ? 0 : end - Arena::kRingBytes));
  }
  std::byte* buffer(uint64_t round) { return bufferOf(rank, round); }
  std::byte* bufferOf(int peer, uint64_t round) {
    return arena.ring(peer, first_ + round * stride_);
  }
  Condition allFilled(uint64_t round) { return arena.allFilled(endOf(round)); }
  Condition filledBy(int peer, uint64_t round) { return arena.filled(peer, endOf(round)); }
  /// Waits for a rank that has ended in the middle. It never holds: the watch over lost ranks
  /// reports the death.
  Condition neverFilledBy(int peer) { return arena.filled(peer, UINT64_MAX); }
  Condition allDrained(uint64_t round) { return arena.allDrained(endOf(round)); }
  /// Holds when all ranks have published the first of two parts of a round.
  Condition allHalfFilled(uint64_t round) { return arena.allFilled(endOf(round) - stride_ / 2); }
  Condition halfFilledBy(int peer, uint64_t round) {
    return arena.filled(peer, endOf(round) - stride_ / 2);
  }

  /// Publishes all rounds of this rank up to this one; also rounds that it will not use.
  void fillTo(uint64_t round) { fill(endOf(round)); }
  void halfFill(uint64_t round) { fill(endOf(round) - stride_ / 2); }
  void fillAll() { fill(position_); }
  /// Says that this rank has read all rounds up to this one.
  void drainTo(uint64_t round) { drain(endOf(round)); }

  // --- Copies -----------------------------------------------------------------------------------

  /// Copies into this rank's slot or ring. A function that fills or publishes has to be called
  /// afterwards.
  void put(std::byte* to, const std::byte* from, size_t bytes) const {
    streams_ ? streamCopy(to, from, bytes) : copyBlock(to, from, bytes);
  }
  /// Is called before other ranks are told of what has been put, if that is done by other means
  /// than those below.
  void settlePuts() const {
    if (streams_) streamFence();
  }
  /// Copies into the caller's output, from a slot, a ring, or the input.
  void take(std::byte* to, const std::byte* from, size_t bytes) const {
    streamsOutput_&& to != from ? streamCopy(to, from, bytes) : copyBlock(to, from, bytes);
    countRead(from, bytes);
  }
  /// Reduces the contributions of all ranks, in rank order, from their slots or rings.
  void reduce(const Collective& c, std::byte* to, const std::byte* const* from,
              size_t count) const {
    reduceFn(c.op.kind, c.type)(to, from, size, count, size);
    if (readOfEach_ != nullptr) RecordedLink::add(*readOfEach_, count * sizeOf(c.type));
  }

  // --- Recorded traffic between this rank and the others ----------------------------------------

  void recordTraffic(Recording& recording);
  /// Count bytes that were read from another rank's memory, or written to it, by other means than
  /// those above.
  void countRead(const std::byte* from, size_t bytes) const {
    count(from, bytes, &RecordedLink::read);
  }
  void countWritten(const std::byte* to, size_t bytes) const {
    count(to, bytes, &RecordedLink::sent);
  }

  // --- The memory of others ---------------------------------------------------------------------

  /// The processes of the ranks, if every rank may read the memory of all others; empty otherwise.
  std::vector<int> processes;

  /// The most addresses that a rank can lend.
  static constexpr int kMostLent = Arena::kSlotDataBytes / sizeof(std::byte*);

  /// Publishes a slot of addresses at which others may read this rank's data: `data(i)`, a span. It
  /// lends copies of memory that they cannot read.
  template <class Data>
  void lend(int count, const Data& data) {
    lent_.clear();
    for (int i = 0; i < count; ++i) lent_.push_back(data(i));
    publishLent();
  }
  /// Returns an address that an arrived peer lends. It is valid in the peer's process only, see
  /// `read`.
  const std::byte* lentBy(int peer, int index) {
    const std::byte* data;
    std::memcpy(&data, slotOf(peer) + index * sizeof data, sizeof data);
    return data;
  }
  /// Reads from a peer's memory. Returns false if it is no longer there. Throws Error(System).
  bool read(int peer, const Reading& reading) const;
  /// Reduces, in rank order, `count` elements of each rank: those of rank r are at `from[r]`, in
  /// its memory. Returns the rank whose memory is no longer there, or -1. Throws Error(System).
  int reduceByReading(const Collective& c, std::byte* to, const std::byte* const* from,
                      size_t count);
  /// Throws if the communicator has failed. A rank that has given up takes its memory back, but
  /// only after it has said so; if this does not throw, what was read before it is valid.
  void throwIfFailed() const {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (arena.failed()) arena.throwFailure();
  }

  // --- Signals of plans -------------------------------------------------------------------------

  /// The most that the counters stand at when a plan begins. At its end a plan says how far it
  /// moved them.
  uint64_t firstSignal() const { return signal_; }
  void endSignals(uint64_t count) { signal_ += count; }

  /// Looks for ranks that are in another collective than this one, even if nothing of theirs is
  /// waited for. Called in waits that take long. Throws Error(Mismatch).
  void checkSignatures() { ctran::checkSignatures(arena, sequence_, signature_); }

 private:
  void count(const std::byte* at, size_t bytes, RecordedLink::Word RecordedLink::*word) const {
    if (links_.empty()) return;
    const int peer = arena.ownerOf(at);
    if (peer >= 0 && links_[peer] != nullptr) RecordedLink::add(links_[peer]->*word, bytes);
  }
  /// Taking back a slot that many ranks have read delays what they read at the same time.
  bool expectsSlot() const {
    constexpr int kFew = 4;
    return !isRooted_ && size <= kFew;
  }
  [[noreturn]] void throwOther(int peer);
  void populateRing();
  void publishLent();
  /// A multiple of the stride, so that no round crosses the end of the ring.
  uint64_t nextFirst() const { return (position_ + stride_ - 1) / stride_ * stride_; }
  uint64_t endOf(uint64_t round) const { return first_ + (round + 1) * stride_; }
  void fill(uint64_t position) {
    if (streams_) streamFence();
    raise(arena.control(rank).filled, position);
  }
  void drain(uint64_t position) { raise(arena.control(rank).drained, position); }
  void raise(std::atomic<uint64_t>& counter, uint64_t value) {
    if (counter.load(std::memory_order_relaxed) >= value) return;
    counter.store(value, std::memory_order_release);
    arena.published();
  }

  /// Returns the condition, or none if it is known to hold. A look at the others' counters costs a
  /// cache miss per rank, so their values are remembered.
  Condition known(uint64_t& reached, const Condition& condition) {
    if (reached >= condition.target) return {};
    uint64_t least = UINT64_MAX;
    for (int r = 0; r < size; ++r) {
      least = std::min(least, condition.counter(r).load(std::memory_order_acquire));
    }
    reached = least;
    return least >= condition.target ? Condition{} : condition;
  }

  std::unique_ptr<std::byte[]> read_;  // buffer for what is being reduced
  std::vector<std::span<const std::byte>> lent_;
  std::vector<std::byte> copies_;  // copies of all that is lent, one after another; or empty
  uint64_t sequence_ = 0;          // of the current collective; the first is 1
  uint64_t signature_ = 0;         // hash of all collectives so far
  uint64_t allBegun_ = 0;          // all ranks are known to have begun this collective
  uint64_t position_ = 0;          // position in the rings up to which they are given away
  uint64_t first_ = 0;             // start of the current rounds
  size_t stride_ = 64;             // size of the current rounds, a power of two
  uint64_t scratchAfter_ = 0;      // where all have to have drained before scratch is written
  bool hasRing_ = false;           // this rank's ring has memory behind it
  uint64_t allDrained_ = 0;        // all ranks are known to have drained up to here
  bool isRooted_ = false;
  StoreChoice puts_, takes_;
  bool streams_ = false;        // puts go past the caches
  bool streamsOutput_ = false;  // takes go past the caches
  uint64_t signal_ = 0;
  uint64_t record_ = 0;
  std::vector<RecordedLink*> links_;  // by rank; null: this rank, or no room for it
  RecordedLink::Word* readOfEach_ = nullptr;
  Board* wholeBoard_ = nullptr;  // that of the collective of which this is a step, if it is one
  uint64_t wholeSequence_ = 0;
};

/// Returns the size of a share, for rounds in which every rank has a share of a buffer for each
/// peer, or one for all. The same on all ranks. `fewest`: the smallest round over all shares, a
/// power of two.
inline size_t shareBytes(size_t blockBytes, int shares, size_t elementBytes,
                         size_t fewest = Arena::kStepBytes) {
  // Two rounds or more, so that publishing and reading overlap.
  const size_t round = std::clamp(std::bit_floor(blockBytes * shares / 2 + 1), fewest,
                                  std::max(fewest, Arena::kRoundBytes));
  return std::max<size_t>(round / shares / 64 * 64, 64) / elementBytes * elementBytes;
}

inline size_t roundsFor(size_t blockBytes, size_t share) {
  return (blockBytes + share - 1) / share;
}

/// Returns the size of the largest of `parts` parts of `bytes`, see Partition, which end at cache
/// lines.
inline size_t partBytes(size_t bytes, int parts) {
  const size_t lines = (bytes + 63) / 64;
  return (lines + parts - 1) / parts * 64;
}

/// The part [offset, offset + bytes) of a block that belongs to one round.
struct Piece {
  size_t offset, bytes;
  Piece(size_t blockBytes, size_t share, uint64_t round)
      : offset(std::min<size_t>(blockBytes, share * round)),
        bytes(std::min(share, blockBytes - offset)) {}
};

}  // namespace ctran
