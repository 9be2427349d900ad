#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/base/work.h"
#include "ctran/gpu/runtime.h"
#include "ctran/stream/device_timer.h"

namespace ctran {

class StreamQueue;

/// One operation on a stream, after it has been enqueued. The program, threads that wait for it and
/// the watchdog share it. Any thread may call any method.
class StreamOperation final : public Work {
 public:
  using Clock = std::chrono::steady_clock;

  /// Describes the operation, and holds what it keeps alive.
  struct Description {
    std::string_view name;  ///< "all_reduce"; the text lives as long as the process
    uint64_t sequence = 0;  ///< its number among the collectives of the communicator; 0: none
    std::chrono::milliseconds timeout{0};
    std::vector<int> awaited = {};  ///< the ranks without which it cannot end, where they are known
    std::shared_ptr<void> keepAlive = nullptr;  ///< the owner of its buffers
    std::shared_ptr<const DeviceTimer::Timing> timing = nullptr;
  };

  /// `end` has been recorded on `stream` behind the operation.
  ///
  /// `issuer` is the stream that was current at the call, if memory is freed in its order: then the
  /// operation releases its buffers as soon as that stream waits for it. Without an issuer it
  /// releases them when it has ended.
  StreamOperation(Description description, std::shared_ptr<StreamQueue> queue, gpu::PooledEvent end,
                  gpu::Stream stream, std::optional<gpu::Stream> issuer);

  std::string_view name() const { return description_.name; }
  uint64_t sequence() const { return description_.sequence; }
  std::chrono::milliseconds timeout() const { return description_.timeout; }
  const std::vector<int>& awaited() const { return description_.awaited; }
  Clock::time_point start() const { return deadline_ - timeout(); }
  Clock::time_point deadline() const { return deadline_; }
  const std::shared_ptr<StreamQueue>& queue() const { return queue_; }

  // The methods of Work. A wait blocks the thread, not a stream.

  /// Asks the device, and notes it if the operation has ended.
  WorkState state() const override;
  void wait(WaitHooks* hooks = nullptr) override { block(std::nullopt, hooks); }
  bool waitFor(std::chrono::nanoseconds limit, WaitHooks* hooks = nullptr) override;
  /// Counts as having seen the error, see ErrorObserver.
  std::exception_ptr error() const override;
  void onStart(std::function<void()> callback) override { callback(); }
  void onDone(std::function<void()> callback) override;

  /// Waits until the operation has ended, at most for `limit` if there is one. Returns whether it
  /// has ended. Throws its error.
  bool block(std::optional<std::chrono::milliseconds> limit, WaitHooks* hooks);
  /// Makes `stream` wait for the operation; the thread goes on at once. Throws the error of an
  /// operation that has failed by now, and InvalidArgument if `stream` captures and the operation
  /// was enqueued before: its end cannot become part of a graph.
  void makeWait(gpu::Stream stream);
  /// Makes `stream` wait as `makeWait` does, without its checks.
  void orderBehind(gpu::Stream stream);
  void throwIfFailed();
  /// Returns the kind of the error with which the operation has failed, if it has. This does not
  /// count as seeing the error.
  std::optional<ErrorKind> failure() const;

  /// Returns when the device ran the operation, which has to have ended; none if it is not timed.
  std::optional<DeviceSpan> deviceSpan() const;

  /// Returns whether the device has ended its part, also after a failure. Throws Error(System) if
  /// the device is lost.
  bool isOver() const;
  void complete() const;
  void fail(const Error& error) const;
  /// Releases the buffers.
  void release() const;

  /// Returns whether a thread is in `block`, which will throw the error.
  bool isAwaited() const { return waiting_ > 0; }
  /// Returns whether the program can still ask for the error.
  bool isReachable() const { return reachable_; }
  /// Is called when the program has let go of the operation.
  void abandon();

 protected:
  void interrupt() override;

 private:
  void end(WorkState state, const Error* error) const;

  const Description description_;
  const std::shared_ptr<StreamQueue> queue_;
  const Clock::time_point deadline_;
  const gpu::PooledEvent end_;
  const gpu::Stream stream_;
  const std::optional<gpu::Stream> issuer_;
  std::atomic<int> waiting_{0};
  std::atomic<bool> reachable_{true};
  // The device ends the operation; the thread that looks first notes it here.
  mutable std::atomic<WorkState> state_{WorkState::Running};
  mutable std::mutex mutex_;  ///< guards what follows
  mutable std::shared_ptr<void> keepAlive_;
  mutable std::optional<Error> error_;
  mutable std::vector<std::function<void()>> callbacks_;
};

}  // namespace ctran
