#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ctran/os/shared_memory.h"
#include "ctran/transport/board.h"
#include "ctran/transport/condition.h"

namespace ctran {

/// The shared memory of the ranks of one host. All of it starts as zeros, and a page costs memory
/// only when somebody touches it.
///
///   Board: header, per rank: control | per rank: slots | per rank: ring | per rank: signals |
///   per ordered pair: channel
///
/// - Slots carry the smallest contributions: the slot of collective n is n % kSlots, and its
///   sequence number, its signature and its data arrive together. A rank rewrites a slot after all
///   ranks have begun collective n - kSlots + 1, hence ended n - kSlots.
/// - The ring carries everything larger. Positions in it are counted in bytes since the beginning,
///   alike on all ranks. `filled` says up to where a rank has published (or will not), `drained` up
///   to where it has read all ranks' rings (or will not). A rank writes at a position after all
///   ranks have drained what was there before, kRingBytes back.
///   It is used from end to end, and is larger than most second-level caches, because lines that
///   have left the caches of those who used them last are written much faster.
/// - Signals are counters that a rank moves and others wait for. Plans use them, with the rings as
///   their scratch, see collective/plan/run.h.
/// - A channel goes from one rank to another, for send and recv: a ring of envelopes, one for each
///   message, and a ring of bytes for those that have no room in their envelope. What a message is,
///   its number and what is small arrive together.
///
/// All counters only grow, in 64 bits, so they never wrap.
class Arena : public Board {
 public:
  static constexpr int kMaxRanks = kMaxSharers;
  static constexpr uint64_t kSlots = 16;
  static constexpr size_t kSlotBytes = 512;
  static constexpr size_t kStepBytes = 16 * 1024;    ///< the most bytes that go in one step
  static constexpr size_t kRoundBytes = 128 * 1024;  ///< the most bytes of one round of larger data
  static constexpr size_t kRingBytes = 16 * kRoundBytes;
  static constexpr int kSignals = 512;

  struct Slot {
    std::atomic<uint64_t> sequence;
    uint64_t signature;
    std::byte data[kSlotBytes - 16];
  };
  static constexpr size_t kSlotDataBytes = kSlotBytes - 16;

  struct Envelope {
    std::atomic<uint64_t> sequence;  ///< of the message: the first of a channel has 1
    std::byte contents[56];
  };
  struct Channel {
    /// Bytes that are in the ring, written by the sender after each part of a message but the
    /// first, which its envelope tells of.
    alignas(64) std::atomic<uint64_t> produced;
    alignas(64) std::atomic<uint64_t> consumed;  ///< bytes, written by the receiver
    std::atomic<uint64_t> taken;                 ///< messages, likewise
  };

  static size_t bytesFor(int size);
  /// `names` are the communicator's numbers of the ranks, where they differ, see Condition.
  Arena(std::shared_ptr<SharedMapping> memory, int rank, int size, const int* names = nullptr);

  /// Returns the rank that owns the slot or ring at that address; -1 if no rank does.
  int ownerOf(const std::byte* at) const {
    const auto offset = static_cast<size_t>(at - data());  // huge if it lies before
    const auto ranks = static_cast<size_t>(size());
    if (offset - rings_ < ranks * kRingBytes)
      return static_cast<int>((offset - rings_) / kRingBytes);
    constexpr size_t kSlotsBytes = kSlots * kSlotBytes;
    if (offset - slots_ < ranks * kSlotsBytes) {
      return static_cast<int>((offset - slots_) / kSlotsBytes);
    }
    return -1;
  }

  /// Returns the communicator's number of a rank.
  int nameOf(int rank) const { return names_ == nullptr ? rank : names_[rank]; }
  const int* names() const { return names_; }

  Slot& slot(int rank, uint64_t sequence) {
    return *at<Slot>(slots_ + (rank * kSlots + sequence % kSlots) * kSlotBytes);
  }
  std::byte* ring(int rank, uint64_t position) {
    return data() + rings_ + rank * kRingBytes + position % kRingBytes;
  }
  std::atomic<uint64_t>& signal(int rank, int index) {
    return *at<std::atomic<uint64_t>>(signals_ + rank * kSignalsBytes + index * 64);
  }
  Channel& channel(int from, int to) { return *at<Channel>(channelAt(from, to)); }
  /// There is one for each cache line of the channel's ring.
  Envelope* envelopes(int from, int to) {
    return at<Envelope>(channelAt(from, to) + sizeof(Channel));
  }
  std::byte* channelData(int from, int to) {
    return data() + channelAt(from, to) + sizeof(Channel) + channelCapacity_;
  }
  size_t channelCapacity() const { return channelCapacity_; }  ///< in bytes, a power of two

  Condition allBegun(uint64_t n) {
    return {field(&Control::begun), kControlBytes, n, 0, size(), names_};
  }
  Condition allFilled(uint64_t n) {
    return {field(&Control::filled), kControlBytes, n, 0, size(), names_};
  }
  Condition allDrained(uint64_t n) {
    return {field(&Control::drained), kControlBytes, n, 0, size(), names_};
  }
  Condition filled(int r, uint64_t n) {
    return {field(&Control::filled), kControlBytes, n, r, r + 1, names_};
  }
  Condition signalled(int r, int index, uint64_t n) {
    const auto* ofRankZero = reinterpret_cast<const std::byte*>(&signal(0, index));
    return {ofRankZero, kSignalsBytes, n, r, r + 1, names_};
  }
  Condition allArrived(uint64_t n) {
    return {slotBase(n), kSlots * kSlotBytes, n, 0, size(), names_};
  }
  Condition arrived(int r, uint64_t n) {
    return {slotBase(n), kSlots * kSlotBytes, n, r, r + 1, names_};
  }

 private:
  static constexpr size_t kSignalsBytes = kSignals * 64;
  static_assert(sizeof(Slot) == kSlotBytes);
  static_assert(sizeof(Envelope) == 64);

  std::byte* slotBase(uint64_t sequence) {
    return data() + slots_ + sequence % kSlots * kSlotBytes;
  }
  size_t channelAt(int from, int to) const {
    return channels_ + (static_cast<size_t>(from) * size() + to) * channelStride();
  }
  size_t channelStride() const { return sizeof(Channel) + 2 * channelCapacity_; }

  const int* names_;
  size_t slots_, rings_, signals_, channels_;  // offsets
  size_t channelCapacity_;
};

}  // namespace ctran
