#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "ctran/trace/operation_ring.h"
#include "ctran/trace/preparation.h"
#include "ctran/trace/recording.h"

namespace ctran {

/// Writes the records of operations of which several may run at a time, such as those on streams.
/// Any thread; a lock and some tens of nanoseconds for each call.
class OverlappingTrace {
 public:
  explicit OverlappingTrace(Recording& recording) : recording_(recording) {}

  struct Entry {
    bool isMessage = false;
    uint64_t position = 0;
    bool isRecorded = false;  ///< else it is counted: the recording is off
  };

  /// The operation is called; until `started` it counts as having started then. `choice`: see
  /// Recording::choice.
  Entry begin(bool isMessage, const OperationRecord& operation, uint64_t bytes, uint64_t tag,
              uint32_t choice) {
    const std::lock_guard lock(mutex_);
    Entry entry{isMessage};
    std::optional<uint64_t>& spare = spare_[isMessage ? 1 : 0];
    RecordSlot& slot =
        spare ? recording_.slot(isMessage, *spare) : recording_.begin(isMessage, entry.position);
    if (spare) entry.position = *std::exchange(spare, std::nullopt);
    if (!recording_.isOn()) return entry;
    entry.isRecorded = true;
    const uint64_t now = ticks();
    slot.version.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    for (RecordSlot::Word* word :
         {&slot.waitingFor, &slot.waitingSince, &slot.firstAt, &slot.waited, &slot.longestWait,
          &slot.longestFor, &slot.failedWith, &slot.endedAt}) {
      set(*word, 0);
    }
    set(slot.what, operation.what);
    set(slot.count, operation.count);
    set(slot.bytes, bytes);
    set(slot.calledAt, now);
    set(slot.startedAt, now);
    set(slot.tag, tag);
    set(slot.choice, choice);
    slot.version.store(entry.position + 1, std::memory_order_release);
    return entry;
  }

  /// The operation does not come about, and is the last one that was called: the next one gets its
  /// number.
  void withdraw(const Entry& entry) {
    change(entry, [](RecordSlot& slot) { slot.version.store(0, std::memory_order_release); });
    const std::lock_guard lock(mutex_);
    spare_[entry.isMessage ? 1 : 0] = entry.position;
  }

  void chose(const Entry& entry, uint32_t choice) {
    change(entry, [choice](RecordSlot& slot) {
      const uint64_t prepared = slot.choice.load(std::memory_order_relaxed) >> kPreparedShift;
      set(slot.choice, prepared << kPreparedShift | choice);
    });
  }
  /// For so many ticks the call has done what a later one need not do again.
  void prepared(const Entry& entry, uint64_t ticks) {
    const uint64_t units = std::min<uint64_t>((ticks >> kPreparedUnit) + 1, UINT32_MAX);
    change(entry, [units](RecordSlot& slot) {
      const uint64_t choice = static_cast<uint32_t>(slot.choice.load(std::memory_order_relaxed));
      set(slot.choice, units << kPreparedShift | choice);
    });
  }
  /// What a record says, for a log; nothing if it has made room for another one.
  struct Summary {
    uint64_t what = 0, count = 0, bytes = 0;
    uint32_t choice = 0;
  };
  std::optional<Summary> summary(const Entry& entry) {
    std::optional<Summary> found;
    change(entry, [&](RecordSlot& slot) {
      found = {.what = slot.what.load(std::memory_order_relaxed),
               .count = slot.count.load(std::memory_order_relaxed),
               .bytes = slot.bytes.load(std::memory_order_relaxed),
               .choice = static_cast<uint32_t>(slot.choice.load(std::memory_order_relaxed))};
    });
    return found;
  }
  void started(const Entry& entry) {
    change(entry, [](RecordSlot& slot) { set(slot.startedAt, ticks()); });
  }
  void ended(const Entry& entry) {
    change(entry, [](RecordSlot& slot) { set(slot.endedAt, ticks()); });
  }
  /// At these times, by a clock that need not quite agree with that of the call.
  void ended(const Entry& entry, uint64_t startedAt, uint64_t endedAt) {
    change(entry, [=](RecordSlot& slot) {
      const uint64_t called = slot.calledAt.load(std::memory_order_relaxed);
      set(slot.startedAt, std::max(called, startedAt));
      set(slot.endedAt, std::max(called, endedAt));
    });
  }
  void failed(const Entry& entry, int kind) {
    change(entry, [kind](RecordSlot& slot) {
      set(slot.failedWith, static_cast<uint64_t>(kind) + 1);
      set(slot.endedAt, ticks());
    });
  }

 private:
  static void set(RecordSlot::Word& word, uint64_t value) {
    word.store(value, std::memory_order_release);
  }

  /// Unless the record has made room for another one.
  template <class Change>
  void change(const Entry& entry, Change change) {
    const std::lock_guard lock(mutex_);
    RecordSlot& slot = recording_.slot(entry.isMessage, entry.position);
    if (slot.version.load(std::memory_order_relaxed) == entry.position + 1) change(slot);
  }

  Recording& recording_;
  std::mutex mutex_;
  std::optional<uint64_t> spare_[2];  ///< number of a collective, of a message
};

}  // namespace ctran
