#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ctran/gpu/driver.h"

/// Streams, events and graph capture, for code that puts work of others on GPUs: one small table
/// that both vendors' drivers fill.
namespace ctran::gpu {

/// The vendor of the GPUs. The functions below mean the same on both.
enum class Platform { Cuda, Hip };

// X(member, type in the table of the CUDA driver, HIP's name)
#define CTRAN_RUNTIME_FUNCTIONS(X)                                         \
  X(getErrorString, "hipDrvGetErrorString")                                \
  X(getErrorName, "hipDrvGetErrorName")                                    \
  X(ctxGetStreamPriorityRange, "hipDeviceGetStreamPriorityRange")          \
  X(streamCreateWithPriority, "hipStreamCreateWithPriority")               \
  X(streamDestroy, "hipStreamDestroy")                                     \
  X(streamWaitEvent, "hipStreamWaitEvent")                                 \
  X(streamIsCapturing, "hipStreamIsCapturing")                             \
  X(streamGetCaptureInfo, "hipStreamGetCaptureInfo_v2")                    \
  X(threadExchangeStreamCaptureMode, "hipThreadExchangeStreamCaptureMode") \
  X(eventCreate, "hipEventCreateWithFlags")                                \
  X(eventDestroy, "hipEventDestroy")                                       \
  X(eventRecord, "hipEventRecord")                                         \
  X(eventQuery, "hipEventQuery")                                           \
  X(eventElapsedTime, "hipEventElapsedTime")                               \
  X(memcpyAsync, "hipMemcpyDtoDAsync")                                     \
  X(memHostAlloc, "hipHostMalloc")                                         \
  X(memFreeHost, "hipHostFree")                                            \
  X(memHostGetDevicePointer, "hipHostGetDevicePointer")                    \
  X(userObjectCreate, "hipUserObjectCreate")                               \
  X(graphRetainUserObject, "hipGraphRetainUserObject")

struct Runtime {
#define CTRAN_MEMBER(name, ...) decltype(Driver::name) name = nullptr;
  CTRAN_RUNTIME_FUNCTIONS(CTRAN_MEMBER)
#undef CTRAN_MEMBER
  /// Used in captures. Null on HIP, where not all captures take them, and on old drivers.
  decltype(Driver::streamWriteValue32) streamWriteValue32 = nullptr;
  decltype(Driver::eventRecordWithFlags) eventRecordWithFlags = nullptr;
  Platform platform = Platform::Cuda;
  Result (*hipGetDevice)(int* device) = nullptr;
  Result (*hipSetDevice)(int device) = nullptr;

  /// Returns the table, loaded at the first call. Throws Error(Unsupported) if this machine has no
  /// such driver.
  static const Runtime& of(Platform platform);

  /// Throws Error(System, "what: name (number): text") unless `result` is success.
  void check(Result result, const char* what) const;
  /// Returns whether the work before a record of `event` has ended; works also while some thread
  /// captures. The event must not have been recorded in a capture. Throws Error(System).
  bool isReached(Event event) const;
  bool isCapturing(Stream stream) const;
  /// Returns the number of the capture that is active on `stream`.
  uint64_t captureOf(Stream stream) const;
};

/// Makes a device current on this thread while it lives.
class ActiveDevice {
 public:
  ActiveDevice(const Runtime& runtime, int device);
  ~ActiveDevice();
  ActiveDevice(const ActiveDevice&) = delete;
  ActiveDevice& operator=(const ActiveDevice&) = delete;

 private:
  const Runtime& runtime_;
  std::optional<DeviceGuard> cuda_;
  int previous_ = -1;
};

/// While it lives, calls of this thread neither fail because a thread captures nor invalidate the
/// capture. Both switches together take 11 ns.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Runtime& runtime) : runtime_(runtime) {
    runtime_.threadExchangeStreamCaptureMode(&mode_);
  }
  ~RelaxedCapture() { runtime_.threadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Runtime& runtime_;
  CaptureMode mode_ = CaptureMode::Relaxed;
};

/// A stream of our own, which does not wait for the default stream.
class OwnStream {
 public:
  OwnStream(const Runtime& runtime, int device, bool highPriority);
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  Stream get() const { return stream_; }

 private:
  const Runtime& runtime_;
  const int device_;
  Stream stream_ = nullptr;
};

/// Events of one device, used again and again. Safe from any thread.
class EventPool {
 public:
  /// Whether the events record when they were reached.
  enum class Timing { Off, On };

  /// At most `mostIdle` unused events are kept.
  EventPool(const Runtime& runtime, int device, size_t mostIdle, Timing timing = Timing::Off);
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  Event take();
  /// Takes an event back. Streams that have been told to wait for it still do.
  void give(Event event) noexcept;

 private:
  const Runtime& runtime_;
  const int device_;
  const size_t mostIdle_;
  const unsigned flags_;
  std::mutex mutex_;
  std::vector<Event> idle_;
};

/// An event of a pool. Its destructor gives it back.
class PooledEvent {
 public:
  PooledEvent() = default;
  explicit PooledEvent(std::shared_ptr<EventPool> pool)
      : pool_(std::move(pool)), event_(pool_->take()) {}
  PooledEvent(PooledEvent&& other) noexcept
      : pool_(std::move(other.pool_)), event_(std::exchange(other.event_, nullptr)) {}
  PooledEvent& operator=(PooledEvent&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~PooledEvent() {
    if (event_) pool_->give(event_);
  }

  Event get() const { return event_; }

 private:
  std::shared_ptr<EventPool> pool_;
  Event event_ = nullptr;
};

/// Makes the graph that `stream` is capturing keep `value` for as long as it, or an executable made
/// of it, exists. Then `destroy(value)` is called on a thread of the driver, where it must not call
/// the driver. On failure `value` stays the caller's. Throws Error(System).
void keepWithGraph(const Runtime& runtime, Stream stream, void* value, void (*destroy)(void*));

}  // namespace ctran::gpu
