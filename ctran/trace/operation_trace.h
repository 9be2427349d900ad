#pragma once

#include "ctran/trace/operation_ring.h"
#include "ctran/trace/recording.h"

namespace ctran {

/// Writes the record of the operation that a queue is in. Whoever drives the queue calls it; it
/// costs two looks at the tick counter, and one more for each change of whom the operation waits
/// for. An operation of a few bytes, which does little but wait, counts as having waited from its
/// start to its end for whom it has waited first: then no more than two looks.
class OperationTrace {
 public:
  static constexpr uint64_t kBriefBytes = 512;

  /// The operation starts. `calledAt`: when it was called, if it was in a queue since; else 0.
  void begin(Recording* recording, bool isMessage, const OperationRecord& operation, uint64_t bytes,
             uint64_t tag, uint64_t calledAt) {
    if (recording == nullptr) return;
    uint64_t position = 0;
    RecordSlot& slot = recording->begin(isMessage, position);
    if (!recording->isOn()) {
      slot_ = nullptr;
      return;
    }
    slot_ = &slot;
    waited_ = longest_ = since_ = 0;
    whom_ = longestFor_ = 0;
    const uint64_t now = ticks();
    isBrief_ = bytes <= kBriefBytes;
    if (isBrief_) since_ = now;
    // A reader that has seen one of the new words sees this, and takes none of the slot.
    slot.version.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    set(slot.what, operation.what);
    set(slot.count, operation.count);
    set(slot.bytes, bytes);
    set(slot.calledAt, calledAt == 0 ? now : calledAt);
    set(slot.startedAt, now);
    set(slot.tag, tag);
    set(slot.choice, 0);
    set(slot.waitingFor, 0);
    set(slot.firstAt, 0);
    set(slot.waited, 0);
    set(slot.longestWait, 0);
    set(slot.longestFor, 0);
    set(slot.failedWith, 0);
    set(slot.endedAt, 0);
    slot.version.store(position + 1, std::memory_order_release);
  }

  /// Where the operation that runs is recorded; null if it is not.
  RecordSlot* slot() const { return slot_; }

  /// Of the operation that runs, as far as it has come.
  struct Summary {
    uint64_t number = 0;  ///< position in its ring
    uint32_t choice = 0;  ///< see Recording::choice
    double waited = 0;    ///< the share of its time that it waited
    int longestFor = -1;  ///< -1: for one of several
  };
  Summary summary() const {
    Summary out;
    if (slot_ == nullptr) return out;
    const uint64_t passed = ticks() - slot_->startedAt.load(std::memory_order_relaxed);
    out.number = slot_->version.load(std::memory_order_relaxed) - 1;
    out.choice = static_cast<uint32_t>(slot_->choice.load(std::memory_order_relaxed));
    const uint64_t now = whom_ == 0 ? 0 : ticks() - since_;
    const bool isLongest = now > longest_;
    if (passed > 0) out.waited = static_cast<double>(waited_ + now) / static_cast<double>(passed);
    out.longestFor = static_cast<int>(isLongest ? whom_ : longestFor_) - 2;
    return out;
  }

  /// See Recording::choice.
  void chose(uint32_t choice) {
    if (slot_ != nullptr) set(slot_->choice, choice);
  }

  /// A look has found that the operation still waits, for that rank (-1: for one of several).
  void waits(int rank) {
    if (slot_ == nullptr) return;
    const uint64_t whom = static_cast<uint64_t>(int64_t{rank} + 2);
    if (whom == whom_) return;
    if (whom_ != 0 || since_ == 0) {
      const uint64_t now = ticks();
      endWait(now);
      since_ = now;
    }
    whom_ = whom;
    set(slot_->waitingSince, since_);
    slot_->waitingFor.store(whom, std::memory_order_release);
  }

  /// A look has found something, and the operation has not ended.
  void moved() {
    if (slot_ == nullptr || whom_ == 0 || isBrief_) return;
    const uint64_t now = ticks();
    endWait(now);
    if (slot_->firstAt.load(std::memory_order_relaxed) == 0) set(slot_->firstAt, now);
    set(slot_->waitingFor, 0);
  }

  void ended() {
    if (slot_ != nullptr) end(0);
  }
  /// It has taken no time: one look at the tick counter less.
  void endedAtOnce() {
    if (slot_ == nullptr) return;
    slot_->endedAt.store(slot_->startedAt.load(std::memory_order_relaxed),
                         std::memory_order_release);
    slot_ = nullptr;
  }
  void failed(int kind) {
    if (slot_ != nullptr) end(static_cast<uint64_t>(kind) + 1);
  }

 private:
  static void set(std::atomic<uint64_t>& word, uint64_t value) {
    word.store(value, std::memory_order_relaxed);
  }

  void endWait(uint64_t now) {
    if (whom_ == 0) return;
    const uint64_t wait = now - since_;
    waited_ += wait;
    if (wait > longest_) {
      longest_ = wait;
      longestFor_ = whom_;
    }
    whom_ = since_ = 0;
    set(slot_->waited, waited_);
    set(slot_->longestWait, longest_);
    set(slot_->longestFor, longestFor_);
  }

  void end(uint64_t failedWith) {
    const uint64_t now = ticks();
    if (whom_ != 0) {
      endWait(now);
      if (failedWith == 0) {  // else it stays told whom the operation waited for in the end
        set(slot_->waitingFor, 0);
        if (slot_->firstAt.load(std::memory_order_relaxed) == 0) set(slot_->firstAt, now);
      }
    }
    set(slot_->failedWith, failedWith);
    slot_->endedAt.store(now, std::memory_order_release);
    slot_ = nullptr;
  }

  RecordSlot* slot_ = nullptr;
  bool isBrief_ = false;
  uint64_t whom_ = 0;
  uint64_t since_ = 0;  // of the wait for `whom_`, or of one that has yet to be noticed; 0: none
  uint64_t waited_ = 0, longest_ = 0, longestFor_ = 0;
};

}  // namespace ctran
