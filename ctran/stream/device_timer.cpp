#include "ctran/stream/device_timer.h"

#include <atomic>
#include <utility>

#include "ctran/base/clock.h"
#include "ctran/base/config.h"
#include "ctran/trace/ticks.h"

namespace ctran {
namespace {

const ConfigBool kGpuTimes{
    "CTRAN_GPU_TIMES", false,
    "Records of operations on GPUs have the times of the GPU: when it began and ended them. Takes "
    "some microseconds of each call; not of what graphs replay.",
    ConfigVariable::Change::Live};

std::atomic<bool>& wanted() {
  static std::atomic<bool> is{kGpuTimes.get()};
  return is;
}
const WhenLiveChanges kGpuTimesChange{kGpuTimes, [] { wanted() = kGpuTimes.get(); }};

/// The clocks drift apart, and the driver tells times in floats of milliseconds.
constexpr std::chrono::seconds kLookAgain{1};
/// A stream may be behind those of other operations, which must not hold the caller up.
constexpr int64_t kLookNanos = 2'000'000;

}  // namespace

bool DeviceTimer::isWanted() { return wanted().load(std::memory_order_relaxed); }

DeviceTimer::DeviceTimer(const gpu::Runtime& runtime, int device, size_t mostIdleEvents)
    : runtime_(runtime),
      events_(std::make_shared<gpu::EventPool>(runtime, device, mostIdleEvents,
                                               gpu::EventPool::Timing::On)),
      stream_(runtime, device, true) {}

std::shared_ptr<const DeviceTimer::Timing> DeviceTimer::begin(gpu::Stream stream) {
  const Clock::time_point now = Clock::now();
  if (now - lookedAt_ >= kLookAgain) look(now);
  if (!last_) return nullptr;
  gpu::PooledEvent begin(events_);
  runtime_.check(runtime_.eventRecord(begin.get(), stream), "recording an event");
  return std::make_shared<const Timing>(runtime_, last_, std::move(begin));
}

void DeviceTimer::look(Clock::time_point now) {
  lookedAt_ = now;
  last_ = nullptr;
  Moment moment{gpu::PooledEvent(events_)};
  const uint64_t ticksBefore = ticks();
  const int64_t nanosBefore = nowNanos();
  runtime_.check(runtime_.eventRecord(moment.event.get(), stream_.get()), "recording an event");
  while (!runtime_.isReached(moment.event.get())) {
    if (nowNanos() - nanosBefore > kLookNanos) return;
  }
  moment.ticks = ticksBefore + (ticks() - ticksBefore) / 2;
  moment.nanos = nanosBefore + (nowNanos() - nanosBefore) / 2;
  last_ = std::make_shared<const Moment>(std::move(moment));
}

std::optional<DeviceSpan> DeviceTimer::Timing::until(gpu::Event end) const {
  float toBegin = 0, toEnd = 0;  // ms
  {
    const gpu::RelaxedCapture relaxed(runtime_);
    const gpu::Event since = since_->event.get();
    if (runtime_.eventElapsedTime(&toBegin, since, begin_.get()) != gpu::kSuccess ||
        runtime_.eventElapsedTime(&toEnd, since, end) != gpu::kSuccess) {
      return std::nullopt;
    }
  }
  const auto ticksSince = static_cast<double>(ticks() - since_->ticks);
  const auto nanosSince = static_cast<double>(nowNanos() - since_->nanos);
  if (toBegin < 0 || toEnd < toBegin || nanosSince <= 0) return std::nullopt;
  const auto at = [&](float millis) {
    const double nanos = static_cast<double>(millis) * 1e6;
    return since_->ticks + static_cast<uint64_t>(nanos * ticksSince / nanosSince);
  };
  return DeviceSpan{at(toBegin), at(toEnd)};
}

}  // namespace ctran
