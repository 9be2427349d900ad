#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "ctran/gpu/runtime.h"

namespace ctran {

/// When the device ran an operation, in ticks of the host (trace/ticks.h).
struct DeviceSpan {
  uint64_t startedAt = 0;
  uint64_t endedAt = 0;
};

/// Times operations on streams by the clock of the device, for their records, if CTRAN_GPU_TIMES
/// says so. One thread at a time uses it.
class DeviceTimer {
 public:
  /// Returns whether operations are to be timed now. Throws Error(InvalidArgument) for an invalid
  /// setting.
  static bool isWanted();

  /// The start of a timed operation. Safe from any thread.
  class Timing;

  DeviceTimer(const gpu::Runtime& runtime, int device, size_t mostIdleEvents);

  /// Has to be called before the operation is put on `stream`. Returns null if it cannot be timed
  /// now.
  std::shared_ptr<const Timing> begin(gpu::Stream stream);
  /// Makes the event that has to be recorded behind a timed operation.
  gpu::PooledEvent makeEnd() { return gpu::PooledEvent(events_); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Moment;

  void look(Clock::time_point now);

  const gpu::Runtime& runtime_;
  const std::shared_ptr<gpu::EventPool> events_;
  const gpu::OwnStream stream_;  ///< used only to look at the clock
  Clock::time_point lookedAt_{};
  std::shared_ptr<const Moment> last_;
};

/// A moment whose time is known by both clocks.
struct DeviceTimer::Moment {
  gpu::PooledEvent event;
  uint64_t ticks = 0;
  int64_t nanos = 0;
};

class DeviceTimer::Timing {
 public:
  Timing(const gpu::Runtime& runtime, std::shared_ptr<const Moment> since, gpu::PooledEvent begin)
      : runtime_(runtime), since_(std::move(since)), begin_(std::move(begin)) {}

  /// Returns when the operation ran; `end` must have been reached. None if the device does not
  /// tell.
  std::optional<DeviceSpan> until(gpu::Event end) const;

 private:
  const gpu::Runtime& runtime_;
  const std::shared_ptr<const Moment> since_;
  const gpu::PooledEvent begin_;
};

}  // namespace ctran
