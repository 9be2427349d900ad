#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "ctran/collective/blocks.h"
#include "ctran/collective/collective.h"
#include "ctran/collective/mismatch.h"
#include "ctran/collective/task.h"
#include "ctran/reduce/reduce.h"
#include "ctran/transport/shm/arena.h"

namespace ctran {

/// What the shared-memory collectives of one communicator work with: its arena, and where this rank
/// stands in it. See Arena for the rules of slots and rounds; the members here keep them.
class ShmContext {
 public:
  explicit ShmContext(Arena& arena) : arena(arena), rank(arena.rank()), size(arena.size()) {}

  Arena& arena;
  const int rank;
  const int size;
  FrameMemory frame;

  // --- Slots: small contributions ---------------------------------------------------------------

  /// Starts the next collective: says that all before it have ended.
  void begin(const Collective& collective);
  /// Starts a step, of this host, of a collective of several hosts, of which `board` keeps the
  /// records.
  void beginStep(Board& board, const OperationRecord& record);
  /// The record of the current collective is marked as completed.
  void end() { arena.control(rank).collectives.complete(record_); }

  uint64_t sequence() const { return sequence_; }

  /// That the slot of this collective may be written.
  Condition slotFree() {
    const uint64_t need = sequence_ < Arena::kSlots ? 0 : sequence_ - Arena::kSlots + 1;
    if (allBegun_ >= need) return {};
    return arena.allBegun(need);
  }
  std::byte* slotData() { return arena.slot(rank, sequence_).data; }
  /// Publishes the slot: its data, and that this rank is here with this signature.
  void publishSlot() {
    Arena::Slot& slot = arena.slot(rank, sequence_);
    slot.signature = signature_;
    slot.sequence.store(sequence_, std::memory_order_release);
    arena.published();
  }
  Condition allArrived() { return arena.allArrived(sequence_); }
  Condition arrived(int peer) { return arena.arrived(peer, sequence_); }
  /// What an arrived peer put into its slot. Throws Error(Mismatch) if it is in another collective.
  const std::byte* slotOf(int peer) {
    const Arena::Slot& slot = arena.slot(peer, sequence_);
    if (slot.signature != signature_) throwOther(peer);
    return slot.data;
  }
  /// slotOf every rank; for collectives in which all wait for all.
  void slotsOfAll(const std::byte** data) {
    for (int r = 0; r < size; ++r) data[r] = slotOf(r);
    allBegun_ = sequence_;
  }

  // --- Rounds: large data in pieces -------------------------------------------------------------

  /// The number of the first round of this collective; it calls `endRounds` with how many it used.
  uint64_t firstRound() const { return round_; }
  void endRounds(uint64_t count) {
    round_ += count;
    fill(round_);
    drain(round_);
  }

  /// That the buffer of `round` may be written.
  Condition roundFree(uint64_t round) {
    const uint64_t need = round < Arena::kRoundBuffers ? 0 : round - Arena::kRoundBuffers + 1;
    return arena.allDrained(need);
  }
  std::byte* buffer(uint64_t round) { return arena.round(rank, round); }
  const std::byte* bufferOf(int peer, uint64_t round) { return arena.round(peer, round); }
  Condition allFilled(uint64_t round) { return arena.allFilled(round + 1); }
  Condition filledBy(int peer, uint64_t round) { return arena.filled(peer, round + 1); }

  /// All rounds before `end` are published, or will not be used, by this rank.
  void fill(uint64_t end) { raise(arena.control(rank).filled, end); }
  /// All rounds before `end` have been read, or will not be, by this rank.
  void drain(uint64_t end) { raise(arena.control(rank).drained, end); }

  // --- Signals, of plans ------------------------------------------------------------------------

  /// What the counters stand at, at most, when a plan begins; it says how far it moved them.
  uint64_t firstSignal() const { return signal_; }
  void endSignals(uint64_t count) { signal_ += count; }

  /// Looks for ranks that are in another collective than this one, also where nothing of theirs is
  /// waited for. For waits that take long. Throws Error(Mismatch).
  void checkSignatures() { ctran::checkSignatures(arena, sequence_, signature_); }

 private:
  [[noreturn]] void throwOther(int peer);
  void raise(std::atomic<uint64_t>& counter, uint64_t value) {
    if (counter.load(std::memory_order_relaxed) >= value) return;
    counter.store(value, std::memory_order_release);
    arena.published();
  }

  uint64_t sequence_ = 0;   // of the current collective; the first is 1
  uint64_t signature_ = 0;  // hash of all collectives so far
  uint64_t allBegun_ = 0;   // all ranks are known to have begun this one
  uint64_t round_ = 0;
  uint64_t signal_ = 0;
  uint64_t record_ = 0;
  Board* wholeBoard_ = nullptr;  // of the collective that this is a step of, if it is
  uint64_t wholeSequence_ = 0;
};

/// Rounds in which every rank has a share of a buffer for each peer, or one for all: how large a
/// share is, and how many rounds a block of some size takes. The same on all ranks.
inline size_t shareBytes(size_t blockBytes, int shares, size_t elementBytes) {
  const size_t largest = Arena::kRoundBytes / shares / 64 * 64;
  // About eight rounds, so that publishing and reading overlap; not below 16 KB over all shares.
  const size_t wanted = std::max<size_t>(blockBytes / 8, 16384 / shares);
  const size_t share = std::clamp<size_t>((wanted + 63) / 64 * 64, 64, largest);
  return share / elementBytes * elementBytes;
}

inline size_t roundsFor(size_t blockBytes, size_t share) {
  return (blockBytes + share - 1) / share;
}

/// The bytes of a block that belong to one round: [offset, offset + bytes).
struct Piece {
  size_t offset, bytes;
  Piece(size_t blockBytes, size_t share, uint64_t round)
      : offset(std::min<size_t>(blockBytes, share * round)),
        bytes(std::min(share, blockBytes - offset)) {}
};

}  // namespace ctran
