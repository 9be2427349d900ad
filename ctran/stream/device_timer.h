#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "ctran/gpu/runtime.h"

namespace ctran {

/// When the device did an operation, in ticks of the host, see trace/ticks.h.
struct DeviceSpan {
  uint64_t startedAt = 0;
  uint64_t endedAt = 0;
};

/// Times operations on streams by the clock of the device, for their records, as CTRAN_GPU_TIMES
/// says. One thread at a time.
class DeviceTimer {
 public:
  /// Whether somebody wants it now. Throws Error(InvalidArgument) for a value that is none.
  static bool isWanted();

  /// What is before an operation that is timed. Any thread.
  class Timing;

  DeviceTimer(const gpu::Runtime& runtime, int device, size_t mostIdleEvents);

  /// To be called before the operation is put on `stream`. Null: it cannot be timed now.
  std::shared_ptr<const Timing> begin(gpu::Stream stream);
  /// To be recorded behind an operation that is timed.
  gpu::PooledEvent makeEnd() { return gpu::PooledEvent(events_); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Moment;

  void look(Clock::time_point now);

  const gpu::Runtime& runtime_;
  const std::shared_ptr<gpu::EventPool> events_;
  const gpu::OwnStream stream_;  ///< nothing but looks at the clock
  Clock::time_point lookedAt_{};
  std::shared_ptr<const Moment> last_;
};

/// A moment that both clocks know.
struct DeviceTimer::Moment {
  gpu::PooledEvent event;
  uint64_t ticks = 0;
  int64_t nanos = 0;
};

class DeviceTimer::Timing {
 public:
  Timing(const gpu::Runtime& runtime, std::shared_ptr<const Moment> since, gpu::PooledEvent begin)
      : runtime_(runtime), since_(std::move(since)), begin_(std::move(begin)) {}

  /// The event has been reached. None if the device does not tell.
  std::optional<DeviceSpan> until(gpu::Event end) const;

 private:
  const gpu::Runtime& runtime_;
  const std::shared_ptr<const Moment> since_;
  const gpu::PooledEvent begin_;
};

}  // namespace ctran
