#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ctran/os/shared_memory.h"

namespace ctran {

/// The signals of a window: for every rank of a host, in memory that these ranks share,
///   - one counter per origin: how often that rank has signalled this one,
///   - numbered words that any rank may set,
///   - how many signals of either kind have arrived, so that a waiter need not know who comes.
class WindowSignals {
 public:
  /// For each rank the number of its numbered words; none if the rank is on another host.
  using Words = std::vector<std::optional<size_t>>;
  static size_t bytesFor(const Words& words);
  WindowSignals(std::shared_ptr<SharedMapping> memory, const Words& words);

  std::atomic<uint64_t>& arrivals(int rank) { return at(rank)[0]; }
  std::atomic<uint64_t>& count(int rank, int origin) { return at(rank)[kLine + origin]; }
  std::atomic<uint64_t>& word(int rank, size_t index) { return at(rank)[kLine + size_ + index]; }

  /// What was written before is visible to a rank that sees the signal. The waiter is not woken
  /// here.
  void add(int rank, int origin) {
    count(rank, origin).fetch_add(1, std::memory_order_release);
    arrivals(rank).fetch_add(1, std::memory_order_seq_cst);
  }
  void set(int rank, size_t index, uint64_t value) {
    word(rank, index).store(value, std::memory_order_release);
    arrivals(rank).fetch_add(1, std::memory_order_seq_cst);
  }

 private:
  static constexpr size_t kLine = 8;  // words; arrivals have a cache line of their own
  std::atomic<uint64_t>* at(int rank) {
    return reinterpret_cast<std::atomic<uint64_t>*>(memory_->data() + offsets_[rank]);
  }

  std::shared_ptr<SharedMapping> memory_;
  size_t size_;
  std::vector<size_t> offsets_;
};

}  // namespace ctran
