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
///   Board: header, per rank: control | per rank: slots | per rank: rounds | per rank: signals |
///   per ordered pair: channel
///
/// - Slots carry small contributions: the slot of collective n is n % kSlots, and its sequence
///   number, its signature and its data arrive together. A rank rewrites a slot after all ranks
///   have begun collective n - kSlots + 1, hence ended n - kSlots.
/// - Rounds carry large data in pieces: the buffer of round g is g % kRoundBuffers. `filled` counts
///   the rounds a rank has published (or will not use), `drained` those it has read to the end. A
///   rank rewrites a buffer after all ranks have drained round g - kRoundBuffers.
/// - Signals are counters that a rank moves and others wait for. Plans use them, with the rounds as
///   their scratch, see collective/plan/shm.h.
/// - A channel is a ring of bytes from one rank to another, for send and recv.
///
/// All counters only grow, in 64 bits, so they never wrap.
class Arena : public Board {
 public:
  static constexpr int kMaxRanks = kMaxSharers;
  static constexpr uint64_t kSlots = 8;
  static constexpr size_t kSlotBytes = 8192;
  static constexpr uint64_t kRoundBuffers = 4;
  static constexpr size_t kRoundBytes = 256 * 1024;
  static constexpr int kSignals = 512;

  struct Slot {
    std::atomic<uint64_t> sequence;
    uint64_t signature;
    std::byte data[kSlotBytes - 16];
  };
  static constexpr size_t kSlotDataBytes = kSlotBytes - 16;

  struct Channel {
    alignas(64) std::atomic<uint64_t> produced;  ///< bytes, written by the sender
    alignas(64) std::atomic<uint64_t> consumed;  ///< bytes, written by the receiver
  };

  static size_t bytesFor(int size);
  /// `names`: what the ranks are called, where that differs: see Condition.
  Arena(std::shared_ptr<SharedMapping> memory, int rank, int size, const int* names = nullptr);

  /// What a rank is called.
  int nameOf(int rank) const { return names_ == nullptr ? rank : names_[rank]; }
  const int* names() const { return names_; }

  Slot& slot(int rank, uint64_t sequence) {
    return *at<Slot>(slots_ + (rank * kSlots + sequence % kSlots) * kSlotBytes);
  }
  std::byte* round(int rank, uint64_t index) {
    return data() + rounds_ + (rank * kRoundBuffers + index % kRoundBuffers) * kRoundBytes;
  }
  std::atomic<uint64_t>& signal(int rank, int index) {
    return *at<std::atomic<uint64_t>>(signals_ + rank * kSignalsBytes + index * 64);
  }
  Channel& channel(int from, int to) { return *at<Channel>(channelAt(from, to)); }
  std::byte* channelData(int from, int to) {
    return data() + channelAt(from, to) + sizeof(Channel);
  }
  size_t channelCapacity() const { return channelCapacity_; }  ///< a power of two

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

  std::byte* slotBase(uint64_t sequence) {
    return data() + slots_ + sequence % kSlots * kSlotBytes;
  }
  size_t channelAt(int from, int to) const {
    return channels_ + (static_cast<size_t>(from) * size() + to) * channelStride();
  }
  size_t channelStride() const { return sizeof(Channel) + channelCapacity_; }

  const int* names_;
  size_t slots_, rounds_, signals_, channels_;  // offsets
  size_t channelCapacity_;
};

}  // namespace ctran
