#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

namespace ctran {

/// What a rank did last, in shared memory: written without locks by the rank, readable by the
/// others also after its death.
struct OperationRecord {
  enum class State : uint64_t { Running, Completed };

  uint64_t sequence = 0;   ///< among the collectives of the communicator; 0 for send and recv
  uint64_t signature = 0;  ///< hash of all collectives up to this one
  uint64_t what = 0;       ///< kind, data type, reduction and root, packed by the writer
  uint64_t count = 0;
  State state = State::Running;
};

/// The last 32 records of one rank. One thread at a time begins one; readers may get nothing while
/// a slot is rewritten.
class OperationRing {
 public:
  static constexpr uint64_t kCapacity = 32;

  /// Returns the position to be given to `complete`.
  uint64_t begin(const OperationRecord& record) {
    const uint64_t position = next_.load(std::memory_order_relaxed);
    Slot& slot = slots_[position % kCapacity];
    slot.version.store(0, std::memory_order_relaxed);  // being written
    std::atomic_thread_fence(std::memory_order_release);
    slot.sequence.store(record.sequence, std::memory_order_relaxed);
    slot.signature.store(record.signature, std::memory_order_relaxed);
    slot.what.store(record.what, std::memory_order_relaxed);
    slot.count.store(record.count, std::memory_order_relaxed);
    slot.version.store(position + 1, std::memory_order_release);
    next_.store(position + 1, std::memory_order_release);
    return position;
  }

  /// Any thread may call it at any time: what it writes says nothing of another record, should the
  /// slot be rewritten meanwhile.
  void complete(uint64_t position) {
    Slot& slot = slots_[position % kCapacity];
    if (slot.version.load(std::memory_order_relaxed) == position + 1) {
      slot.completed.store(position + 1, std::memory_order_relaxed);
    }
  }

  std::optional<OperationRecord> last() const {
    const uint64_t next = next_.load(std::memory_order_acquire);
    return next == 0 ? std::nullopt : read(next - 1);
  }

  /// The record of the collective with that sequence number, while it is remembered.
  std::optional<OperationRecord> find(uint64_t sequence) const {
    const uint64_t next = next_.load(std::memory_order_acquire);
    for (uint64_t p = next; p > 0 && p + kCapacity > next; --p) {
      const auto record = read(p - 1);
      if (record && record->sequence == sequence) return record;
    }
    return std::nullopt;
  }

 private:
  struct Slot {
    std::atomic<uint64_t> version, sequence, signature, what, count;
    std::atomic<uint64_t> completed;  ///< the version of the record that has completed
  };

  std::optional<OperationRecord> read(uint64_t position) const {
    const Slot& slot = slots_[position % kCapacity];
    if (slot.version.load(std::memory_order_acquire) != position + 1) return std::nullopt;
    OperationRecord record;
    record.sequence = slot.sequence.load(std::memory_order_relaxed);
    record.signature = slot.signature.load(std::memory_order_relaxed);
    record.what = slot.what.load(std::memory_order_relaxed);
    record.count = slot.count.load(std::memory_order_relaxed);
    const bool completed = slot.completed.load(std::memory_order_relaxed) == position + 1;
    record.state = completed ? OperationRecord::State::Completed : OperationRecord::State::Running;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (slot.version.load(std::memory_order_relaxed) != position + 1) return std::nullopt;
    return record;
  }

  std::atomic<uint64_t> next_;
  std::array<Slot, kCapacity> slots_;
};

}  // namespace ctran
