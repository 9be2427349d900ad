#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "ctran/base/clock.h"

namespace ctran {

/// Chooses how a rank writes what it will not read itself: through its caches, or past them.
///
/// What others will read: through the caches, every line has to be taken from the caches of the
/// ranks that read it last, and is later fetched from this core's cache. Between cores that share a
/// cache that is fast, provided that the lines have meanwhile been evicted to it; between other
/// cores it is several times slower than writing past the caches. The caller's output: through the
/// caches, every line is read before it is written, from memory if the cache has no room for it;
/// and a virtual machine's cache may be a small part of the one that it reports.
///
/// Nothing tells which is faster, and a virtual machine's cores move. So both are tried in turn,
/// now and then, on operations of about the same size, and the faster one is kept. Past the caches
/// has to be faster by `gain`, because the time of an operation depends on the other ranks, too.
/// Other ranks are not affected by the choice.
class StoreChoice {
 public:
  static constexpr size_t kFewestBytes = 512;  ///< below that there is nothing to gain

  /// Begins an operation of `bytes` bytes. Returns whether it is to write past the caches. `tries`:
  /// the operation may be a trial; false where times say nothing, because something else is being
  /// tried, or the memory to be written has not been touched yet. `gain`: how many times as fast
  /// writing past the caches has to be.
  bool begin(size_t bytes, bool tries, double gain = 1) {
    started_ = 0;
    gain_ = gain;
    isTrial_ = false;
    if (bytes < kFewestBytes) return false;
    current_ = &classes_[std::min<size_t>(std::bit_width(bytes / kFewestBytes), kClasses) - 1];
    if (!tries) return current_->streams;
    if (current_->operations == current_->period) {
      current_->operations = 0;
      current_->period = std::min(2 * current_->period, kLongestPeriod);
    }
    const uint32_t phase = current_->operations++;
    if (phase >= 2 * kTrial) return current_->streams;
    isTrial_ = true;
    if (phase == 0) current_->best = {INT64_MAX, INT64_MAX};
    if (phase % kTrial >= kWarmUp) started_ = nowNanos();
    return phase >= kTrial;
  }

  /// Returns whether the operation that has begun is a trial.
  bool isTrial() const { return isTrial_; }

  /// Ends the operation.
  void end() {
    if (started_ == 0) return;
    const uint32_t phase = current_->operations - 1;
    int64_t& best = current_->best[phase / kTrial];
    best = std::min(best, nowNanos() - started_);
    if (phase == 2 * kTrial - 1) {
      current_->streams =
          gain_ * static_cast<double>(current_->best[1]) < static_cast<double>(current_->best[0]);
    }
    started_ = 0;
  }

 private:
  struct Class {
    uint32_t operations = 0;  // of the current period, which begins with the trial
    uint32_t period = 64;     // doubles: the first operations also pay for the caller's memory
    bool streams = false;
    std::array<int64_t, 2> best{};  // nanoseconds: through the caches, past them
  };
  static constexpr size_t kClasses = 16;  // by powers of two
  static constexpr uint32_t kLongestPeriod = 1024, kTrial = 8, kWarmUp = 3;

  std::array<Class, kClasses> classes_;
  Class* current_ = nullptr;
  int64_t started_ = 0;
  bool isTrial_ = false;
  double gain_ = 1;
};

}  // namespace ctran
