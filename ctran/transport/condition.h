#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ctran {

/// What an operation waits for: that the counters of ranks `rank` .. `end`-1, which lie `stride`
/// bytes apart in shared memory, have reached `target`. As data, so that whoever waits can look
/// without entering the operation, can sleep, and can say whom it waits for.
struct Condition {
  const std::byte* base = nullptr;  ///< where rank 0's counter is
  size_t stride = 0;
  uint64_t target = 0;
  int rank = 0;  ///< the first rank that has not been seen there; -1: one of several
  int end = 0;
  /// What the ranks are called where that differs: rank r is `names[r]`.
  const int* names = nullptr;
  /// If there are any: instead of the above, that one of these holds.
  const Condition* alternatives = nullptr;
  int alternativeCount = 0;
  /// Of those: there is hope as long as one may hold. Otherwise each is needed in the end.
  bool anyWillDo = false;

  /// That any of `count` conditions holds, which stay where they are meanwhile.
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

  /// That a counter which anybody may move has reached `target`; `rank` is -1 then.
  static Condition ofAnybody(const std::atomic<uint64_t>& counter, uint64_t target) {
    return {reinterpret_cast<const std::byte*>(&counter), 0, target, -1, 0};
  }

  /// Whom this waits for, as the communicator calls it; -1: one of several.
  int awaited() const { return names != nullptr && rank >= 0 ? names[rank] : rank; }

  /// Acquires what the ranks published before they moved their counters.
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

  /// Whether this does not hold, and `who` is still the first rank that is missing. A thread
  /// that is about to sleep until `who` moves has to ask this once more: the next one to wait
  /// for may be another by now.
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
