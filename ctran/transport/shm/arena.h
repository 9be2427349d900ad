#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ctran/base/error.h"
#include "ctran/os/shared_memory.h"
#include "ctran/trace/operation_ring.h"
#include "ctran/transport/condition.h"

namespace ctran {

/// The shared memory of the ranks of one host. All of it starts as zeros, and a page costs memory
/// only when somebody touches it.
///
///   header | per rank: control | per rank: slots | per rank: rounds | per rank: signals |
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
class Arena {
 public:
  static constexpr int kMaxRanks = 64;
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

  enum class RankState : uint32_t { Joining, Alive, Left };

  /// One rank's counters: each line has one writer, the rank itself, except `doorbell`.
  struct Control {
    alignas(64) std::atomic<uint64_t> begun;  ///< the collective it is in; all before have ended
    alignas(64) std::atomic<uint64_t> filled;
    std::atomic<uint64_t> drained;
    alignas(64) std::atomic<uint32_t> doorbell;  ///< the rank's sleepers wait on it
    alignas(64) std::atomic<int32_t> awaited;    ///< whom a sleeper waits for; -1: anybody
    std::atomic<RankState> state;
    alignas(64) OperationRing collectives;  ///< written by whoever drives their lane
    OperationRing messages;                 ///< sends and receives; written under Core's lock
  };

  static size_t bytesFor(int size);
  Arena(std::shared_ptr<SharedMapping> memory, int rank, int size);

  int rank() const { return rank_; }
  int size() const { return size_; }

  Control& control(int rank) { return *at<Control>(controls_ + rank * kControlBytes); }
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

  Condition allBegun(uint64_t n) { return {field(&Control::begun), kControlBytes, n, 0, size_}; }
  Condition allFilled(uint64_t n) { return {field(&Control::filled), kControlBytes, n, 0, size_}; }
  Condition allDrained(uint64_t n) {
    return {field(&Control::drained), kControlBytes, n, 0, size_};
  }
  Condition filled(int r, uint64_t n) {
    return {field(&Control::filled), kControlBytes, n, r, r + 1};
  }
  Condition signalled(int r, int index, uint64_t n) {
    const auto* ofRankZero = reinterpret_cast<const std::byte*>(&signal(0, index));
    return {ofRankZero, kSignalsBytes, n, r, r + 1};
  }
  Condition allArrived(uint64_t n) { return {slotBase(n), kSlots * kSlotBytes, n, 0, size_}; }
  Condition arrived(int r, uint64_t n) { return {slotBase(n), kSlots * kSlotBytes, n, r, r + 1}; }

  /// To be called after a counter was moved: wakes the ranks that sleep until this one does so.
  void published() {
    // The counter's store must not pass the load below, or a sleeper who looked at the counter just
    // before it moved would be missed; sleepers do the same in the other order.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (header().sleepers.load(std::memory_order_relaxed) != 0) wakeSleepers(rank_);
  }

  /// Announces that this rank will sleep until `awaited` publishes (-1: until anybody does). Look
  /// at the conditions once more, then futexWait on the doorbell for the returned value.
  uint32_t prepareSleep(int awaited);

  /// Wakes every rank, whomever it waits for; also sleepers whose wake-up was lost, because whoever
  /// was about to wake them was killed.
  void wakeAll();
  /// Wakes the sleepers of one rank.
  void wake(int rank);

  /// Breaks the communicator for all ranks. The first failure stands; whether this is it.
  bool fail(const Error& error);
  bool failed() const { return header().failure.state.load(std::memory_order_relaxed) != 0; }
  [[noreturn]] void throwFailure() const;

 private:
  struct Failure {
    enum State : uint32_t { kNone, kReadable, kWriting };  ///< kWriting + r: rank r writes it
    std::atomic<uint32_t> state;
    int32_t kind;
    int32_t reporter;
    int32_t rankCount;
    int32_t ranks[kMaxRanks];
    char op[256];
    char hint[512];
    char message[14 * 1024];  ///< room for a roll call of all ranks
  };
  struct Header {
    alignas(64) std::atomic<uint64_t> sleepers;  ///< bit r: rank r has a sleeper
    alignas(64) Failure failure;
  };

  static constexpr size_t kHeaderBytes = 16384;
  static constexpr size_t kControlBytes = 4096;
  static constexpr size_t kSignalsBytes = kSignals * 64;
  static_assert(sizeof(Header) <= kHeaderBytes && sizeof(Control) <= kControlBytes);
  static_assert(sizeof(Slot) == kSlotBytes);

  template <class T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(memory_->data() + offset);
  }
  std::byte* data() const { return memory_->data(); }
  Header& header() const { return *at<Header>(0); }
  std::byte* slotBase(uint64_t sequence) {
    return data() + slots_ + sequence % kSlots * kSlotBytes;
  }
  template <class Member>
  std::byte* field(Member Control::*member) {
    return reinterpret_cast<std::byte*>(&(control(0).*member));
  }
  size_t channelAt(int from, int to) const {
    return channels_ + (static_cast<size_t>(from) * size_ + to) * channelStride();
  }
  size_t channelStride() const { return sizeof(Channel) + channelCapacity_; }
  void wakeSleepers(int publisher);

  std::shared_ptr<SharedMapping> memory_;
  int rank_;
  int size_;
  size_t controls_, slots_, rounds_, signals_, channels_;  // offsets
  size_t channelCapacity_;
};

}  // namespace ctran
