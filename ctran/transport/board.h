#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/base/per_rank.h"
#include "ctran/os/shared_memory.h"
#include "ctran/trace/operation_ring.h"

namespace ctran {

/// What is known of every rank of a communicator: where it is, what it did last, whether it has
/// left; the failure that broke the communicator; and where threads sleep. It lies at the start of
/// memory that is filled with zeros at first.
///
/// The ranks of one host share their board (see Arena), and each writes its own part. Across hosts
/// every rank has the parts of the other ranks for itself: the network writes there what it hears
/// of them. There are parts only for ranks that it has heard of.
class Board {
 public:
  enum class RankState : uint32_t { Joining, Alive, Left };
  /// What a rank says of reading the memory of the others: that it can, and that this is likely to
  /// be faster than shared memory.
  enum Reading : uint32_t { kCanRead = 1, kReadingPays = 2 };

  /// One rank's counters: each line has one writer, the rank itself, except `doorbell`.
  struct Control {
    alignas(64) std::atomic<uint64_t> begun;  ///< the collective it is in; all before have ended
    alignas(64) std::atomic<uint64_t> filled;
    alignas(64) std::atomic<uint64_t> drained;
    alignas(64) std::atomic<uint32_t> doorbell;  ///< the rank's sleepers wait on it
    alignas(64) std::atomic<int32_t> awaited;    ///< the rank that a sleeper waits for; -1: any
    std::atomic<RankState> state;
    std::atomic<uint32_t> reading;          ///< bits of Reading
    alignas(64) OperationRing collectives;  ///< written by the thread that drives their queue
    OperationRing messages;                 ///< sends and receives; begun under Core's lock
  };

  static constexpr int kMaxSharers = 64;
  static size_t bytesFor(int size) { return kHeaderBytes + size * kControlBytes; }

  /// `shared`: all `size` ranks, at most kMaxSharers, use this memory; otherwise it is this rank's
  /// own, with room for one.
  Board(std::shared_ptr<SharedMapping> memory, int rank, int size, bool shared);

  /// Makes a board of `size` ranks, of which `sharers`, this one among them, share the failure and
  /// their own parts: those lie at `offset` in `memory`, which has room for them. Nobody sleeps at
  /// this board.
  Board(std::shared_ptr<SharedMapping> memory, size_t offset, int rank, int size,
        const std::vector<int>& sharers);

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Returns the part of a rank. If nothing was heard of the rank yet, the part is made, filled
  /// with zeros.
  Control& control(int rank) {
    if (heard_ == nullptr) return *at<Control>(kHeaderBytes + rank * kControlBytes);
    return rank == rank_ ? *own_ : controlOf(rank);
  }
  /// Returns the part of a rank, or null if there is none.
  Control* find(int rank);
  /// Returns the ranks that have a part, in order.
  std::vector<int> known() const;

  /// Returns whether that rank writes its part itself.
  bool isShared(int rank) const;

  /// Has to be called after a counter was moved: wakes the ranks that sleep until this one moves
  /// it.
  void published() {
    // The counter's store must not pass the load below, or a sleeper who looked at the counter just
    // before it moved would be missed; sleepers do the same in the other order. Where they can do
    // it on behalf of all ranks, see processBarrier, a rank that publishes does not pay for it.
    if (header().fences.load(std::memory_order_relaxed) != 0) {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    if (header().sleepers.load(std::memory_order_relaxed) != 0) wakeSleepers(rank_);
  }

  /// Announces that this rank will sleep until `awaited` publishes (-1: until any rank does). The
  /// caller looks at the conditions once more, then calls futexWait on the doorbell with the
  /// returned value.
  uint32_t prepareSleep(int awaited);

  /// Wakes every rank, whomever it waits for. This also wakes sleepers whose wake-up was lost,
  /// because the rank that was about to wake them was killed.
  void wakeAll();
  /// Wakes the sleepers of one rank.
  void wake(int rank);

  /// Breaks the communicator for all who share this memory. The first failure stands. Returns
  /// whether this one is the first.
  bool fail(const Error& error);
  bool failed() const { return header().failure.state.load(std::memory_order_relaxed) != 0; }
  [[noreturn]] void throwFailure() const;

 protected:
  struct Failure {
    enum State : uint32_t { kNone, kReadable, kWriting };  ///< kWriting + r: rank r is writing it
    std::atomic<uint32_t> state;
    int32_t kind;
    int32_t reporter;
    int32_t rankCount;
    int32_t ranks[kMaxSharers];
    char op[256];
    char hint[512];
    char message[14 * 1024];  ///< room for a roll call of all ranks
  };
  struct Header {
    alignas(64) std::atomic<uint64_t> sleepers;  ///< bit r: rank r has a sleeper
    /// Not 0: some rank cannot issue barriers for all, see published().
    std::atomic<uint32_t> fences;
    alignas(64) Failure failure;
  };

  static constexpr size_t kHeaderBytes = 16384;
  static constexpr size_t kControlBytes = 4096;
  static_assert(sizeof(Header) <= kHeaderBytes && sizeof(Control) <= kControlBytes);

  template <class T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  std::byte* data() const { return base_; }
  Header& header() const { return *at<Header>(0); }
  template <class Member>
  std::byte* field(Member Control::*member) {
    return reinterpret_cast<std::byte*>(&(control(0).*member));
  }

 private:
  Control& controlOf(int rank);
  Control* sharedBy(int rank) const;
  uint64_t sleeperBit(int rank) const { return uint64_t{1} << (shared_ ? rank : 0); }
  void ring(int rank);
  void wakeSleepers(int publisher);

  std::shared_ptr<SharedMapping> memory_;
  std::byte* const base_;
  const int rank_;
  const int size_;
  const bool shared_;
  // For a board that not all ranks share: the ranks that share it, in order, and what is heard of
  // others.
  std::vector<int> sharers_;
  Control* own_ = nullptr;
  std::unique_ptr<PerRank<Control>> heard_;
};

}  // namespace ctran
