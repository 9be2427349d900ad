#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/base/work.h"
#include "ctran/gpu/discard.h"
#include "ctran/gpu/runtime.h"
#include "ctran/os/process.h"
#include "ctran/stream/device_timer.h"
#include "ctran/stream/error_observer.h"
#include "ctran/stream/stream_operation.h"

namespace ctran {

struct StreamQueueOptions {
  const gpu::Runtime& runtime;
  int device = 0;
  std::string name;  ///< name of the communicator
  int rank = 0;
  int size = 1;
  bool highPriority = false;  ///< priority of the communicator's own stream
  /// Buffers are freed in the order of the stream that is current at the call, as torch's caching
  /// allocator does.
  bool freesInStreamOrder = false;
  size_t mostIdleEvents = 1000;
  std::chrono::milliseconds checkInterval{100};  ///< interval of the watchdog
  /// Interval of the watchdog while no operation runs.
  std::chrono::milliseconds idleInterval{1000};
  std::shared_ptr<ErrorObserver> observer = std::make_shared<ErrorObserver>();
};

/// The operations of a communicator on streams: those that have been enqueued and have not ended,
/// what graphs keep alive, and the error that has broken the communicator.
///
/// To enqueue an operation a caller asks `place` for the stream, puts the work there, and hands it
/// to `track`, or to `keepWithGraph` if the stream captures; it keeps the placement until then. The
/// watchdog calls `inspect`, which notes the ends of operations and their deadlines. A derived
/// class knows what runs on the device, how to end it, and how to tell the other ranks.
///
/// Operations and graphs own the queue (`share`): it lives until the last of them has ended. Only
/// one thread at a time enqueues; every thread may call the rest.
class StreamQueue {
 public:
  using Clock = StreamOperation::Clock;

  explicit StreamQueue(StreamQueueOptions options);
  virtual ~StreamQueue() = default;
  StreamQueue(const StreamQueue&) = delete;
  StreamQueue& operator=(const StreamQueue&) = delete;

  const gpu::Runtime& runtime() const { return options_.runtime; }
  int device() const { return options_.device; }
  const std::string& name() const { return options_.name; }
  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  ErrorObserver& observer() const { return *options_.observer; }
  std::chrono::milliseconds checkInterval() const { return options_.checkInterval; }
  std::chrono::milliseconds idleInterval() const { return options_.idleInterval; }
  /// Returns "all_reduce of communicator 'x' (rank 0 of 2)" for op "all_reduce".
  std::string describe(std::string_view op) const;

  // Failure: the first error breaks the communicator and stays.

  /// Returns false in a child that this process has forked; its copy must leave the device alone.
  bool belongsHere() const { return processToken() == process_; }
  bool isBroken() const { return broken_; }
  std::optional<Error> error() const;
  /// Throws the error of a broken communicator.
  void throwIfBroken() const;
  /// Breaks the communicator with `error`: its kernels and operations end. `tellOthers`: the other
  /// ranks are told.
  void breakWith(const Error& error, bool tellOthers = true);
  /// Breaks the communicator as the program asks for it.
  void abort();
  /// Calls `callback` once when the communicator breaks, at once if it has, as long as it is owned.
  /// Used for what waits on streams in addition to the communicator's own kernels.
  void onBreak(std::weak_ptr<std::function<void()>> callback);
  /// Has the watchdog call `look`, which does not throw, at every inspection, as long as it is
  /// owned: for kernels that the program launches, which may run at any time and wait for other
  /// ranks. Meanwhile the watchdog frees nothing, as that would wait for them.
  void onInspect(std::weak_ptr<std::function<void()>> look);
  void lookAtPrograms();
  /// Returns whether there are any; those of a broken communicator have been ended.
  bool hasPrograms() const;

  // Enqueueing. The device has to be current.

  struct Placement {
    gpu::Stream current;  ///< the caller's stream
    gpu::Stream stream;   ///< the stream on which the operation goes
    bool isCaptured;
    std::shared_ptr<const DeviceTimer::Timing> timing = nullptr;  ///< null: it is not timed
    gpu::Launching launching = {};  ///< until the operation is tracked
    bool joins = false;             ///< `current` is to wait for the operation
  };
  /// Chooses the stream of an operation: `current`, or with `aside` the communicator's own stream,
  /// which waits for what `current` holds by now. With `highPriority` it is a stream of the highest
  /// priority in both cases. While `current` captures, every operation goes on it.
  Placement place(gpu::Stream current, bool aside, bool highPriority = false);
  /// Tracks the operation that has been put at `placement`, which is not captured. `keepAlive`
  /// makes the owner of its buffers; it is not called if the allocator's order suffices.
  std::shared_ptr<StreamOperation> track(const Placement& placement,
                                         StreamOperation::Description description,
                                         const std::function<std::shared_ptr<void>()>& keepAlive);
  /// Makes `stream` wait for all earlier operations that were not captured.
  void orderAllBefore(gpu::Stream stream) const;
  /// Keeps `value`, and this queue, alive as long as the graph that `stream` captures exists.
  void keepWithGraph(gpu::Stream stream, std::shared_ptr<void> value);
  /// Returns whether such a graph exists; it may be replayed at any time.
  bool hasGraphs() const { return graphs_ > 0; }

  gpu::Stream ownStream(bool highPriority = false);
  const std::shared_ptr<gpu::EventPool>& events() const { return events_; }
  void copy(void* to, const void* from, size_t bytes, gpu::Stream stream) const;
  uint64_t nextSequence() { return ++issued_; }
  uint64_t issued() const { return issued_; }

  /// Returns whether every operation has ended.
  virtual bool isIdle() const;
  /// Waits until every operation has ended or failed.
  void drain(WaitHooks* hooks = nullptr);

  // What follows is for the watchdog and for operations.

  /// Returns an owner of the queue.
  virtual std::shared_ptr<StreamQueue> share() = 0;

  /// Notes which operations have ended and which are late. Returns whether there is nothing to look
  /// after. Never throws.
  virtual bool inspect() = 0;
  /// Returns whether kernels that have ended have done their work. Kernels also end when told to
  /// give up.
  virtual bool isSound() const { return true; }
  /// Breaks the communicator if something is known to be wrong with it.
  virtual void diagnose() {}

 protected:
  /// The operations on one stream. They end in this order.
  struct OneStream {
    gpu::Stream stream;
    std::deque<std::shared_ptr<StreamOperation>> operations;
  };

  /// Takes out the operations that have ended.
  void retireEnded();
  /// Returns, among the operations whose deadlines have passed, the one that was enqueued first;
  /// null if it has ended meanwhile.
  std::shared_ptr<StreamOperation> findLate(Clock::time_point now) const;
  void callOnBreak();

  /// Is called once, when the communicator has broken. Ends its kernels and calls `callOnBreak`.
  virtual void endKernels() = 0;
  /// Begins to tell the other ranks why the communicator has broken. Must not block: the caller may
  /// hold locks. Returns a function that waits, for a moment, until they have been told; none if
  /// there is nothing to wait for.
  virtual std::function<void()> announce(const Error& error) {
    static_cast<void>(error);
    return {};
  }
  /// Returns whether a thread is in a call that will throw the error, so that the program sees it.
  virtual bool isCalling() const { return false; }
  /// Returns the operation that runs in a replay of a graph, if one does. It has no work: the
  /// program sees its error in the next call.
  virtual std::optional<std::string_view> replayed() { return std::nullopt; }

  mutable std::mutex errorMutex_;
  std::optional<Error> error_;
  std::atomic<bool> broken_{false};
  mutable std::mutex streamsMutex_;
  std::vector<OneStream> streams_;  ///< streams that have operations

 private:
  struct KeptByGraph;

  [[noreturn]] void throwError() const;
  void failOperations(const Error& error, const std::function<void()>& awaitTold);

  const StreamQueueOptions options_;
  const uint64_t process_ = processToken();
  const std::shared_ptr<gpu::EventPool> events_;
  std::array<std::optional<gpu::OwnStream>, 2> ownStreams_;  ///< the second has a high priority
  std::optional<DeviceTimer> timer_;
  std::vector<std::weak_ptr<std::function<void()>>> onBreak_;    ///< guarded by errorMutex_
  std::vector<std::weak_ptr<std::function<void()>>> onInspect_;  ///< guarded by errorMutex_
  std::atomic<uint64_t> issued_{0};
  std::atomic<int> graphs_{0};  ///< number of values that graphs keep
};

}  // namespace ctran
