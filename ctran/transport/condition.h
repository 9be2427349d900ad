#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ctran {

/// What an operation waits for: that the counters of ranks `rank` .. `end`-1, which lie `stride`
/// bytes apart in shared memory, have reached `target`. It is plain data, so that a waiting thread
/// can look without entering the operation, can sleep, and can say for whom it waits.
struct Condition {
  const std::byte* base = nullptr;  ///< where rank 0's counter is
  size_t stride = 0;
  uint64_t target = 0;
  int rank = 0;  ///< the first rank whose counter has not been seen there; -1: one of several
  int end = 0;
  /// The communicator's numbers of the ranks, where they differ: rank r is `names[r]`. Null: they
  /// do not.
  const int* names = nullptr;
  /// If not null, this condition holds when one of these holds; the fields above are not used.
  const Condition* alternatives = nullptr;
  int alternativeCount = 0;
  /// True: the condition can hold as long as one alternative can. False: every alternative is
  /// needed in the end, so it cannot hold once one of them cannot.
  bool anyWillDo = false;

  /// Returns the condition that any of `count` conditions holds. These must stay in place
  /// meanwhile.
  static Condition any(const Condition* conditions, int count) {
    if (count == 1) return conditions[0];
    Condition condition;
    condition.alternatives = conditions;
    condition.alternativeCount = count;
    condition.rank = conditions[0].awaited();
    for (int i = 1; i < count; ++i) {
      if (conditions[i].awaited() != condition.rank) condition.rank = -1;
    }
    return condition;
  }

  /// Returns the condition that a counter which any rank may move has reached `target`; `rank` is
  /// -1 then.
  static Condition ofAnybody(const std::atomic<uint64_t>& counter, uint64_t target) {
    return {reinterpret_cast<const std::byte*>(&counter), 0, target, -1, 0};
  }

  /// Returns the rank that this waits for, as the communicator numbers it; -1: one of several.
  int awaited() const { return names != nullptr && rank >= 0 ? names[rank] : rank; }

  /// Returns whether the condition holds. Acquires what the ranks published before they moved their
  /// counters.
  bool holds() {
    if (alternatives != nullptr) {
      for (int i = 0; i < alternativeCount; ++i) {
        Condition one = alternatives[i];
        if (one.holds()) return true;
      }
      return false;
    }
    while (rank < end && counter(rank).load(std::memory_order_acquire) >= target) ++rank;
    return rank >= end;
  }

  /// Returns whether this does not hold, and `who` is still the first rank that is missing. A
  /// thread that is about to sleep until `who` moves has to ask this once more, because the next
  /// rank to wait for may be another one by now.
  bool stillWaitsFor(int who) const {
    Condition now = *this;
    return !now.holds() && now.awaited() == who;
  }

  const std::atomic<uint64_t>& counter(int r) const {
    return *reinterpret_cast<const std::atomic<uint64_t>*>(base + static_cast<size_t>(r) * stride);
  }
};

static_assert(sizeof(std::atomic<uint64_t>) == 8 && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace ctran
