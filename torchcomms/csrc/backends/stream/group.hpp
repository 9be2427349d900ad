#pragma once

#include <atomic>
#include <chrono>
#include <comms/torchcomms/TorchCommTypes.hpp>
#include <comms/torchcomms/TorchWork.hpp>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/gpu/runtime.h"
#include "ctran/os/process.h"
#include "torchcomms/csrc/backends/stream/current_stream.hpp"
#include "torchcomms/csrc/error_monitor.hpp"

namespace torch::comms::stream {

class Operation;
using ctran::gpu::Stream;
using Clock = std::chrono::steady_clock;

/// The stream that an operation is put on, and the one that was current at the call.
struct Place {
  Stream current;
  Stream stream;
  bool isCaptured;
};

/// What a group is made of.
struct StreamSetup {
  const ctran::gpu::Runtime& runtime;
  at::Device device;
  std::string name;
  int rank = 0;
  int size = 1;
  bool highPriority = false;
  size_t mostIdleEvents = 1000;
  std::chrono::milliseconds checkInterval{100};  ///< of the watchdog
  std::chrono::milliseconds idleInterval{1000};  ///< while nothing has been issued
  std::shared_ptr<ErrorMonitor> monitor;
};

/// A communicator whose operations are work on streams of a device, and all that goes on with it:
/// what has been issued and has not ended, and what graphs keep. Shared by the backend, its works
/// and the watchdog; lives until the last operation has ended and the last graph with one has gone.
class StreamGroup : public std::enable_shared_from_this<StreamGroup> {
 public:
  explicit StreamGroup(StreamSetup setup);
  virtual ~StreamGroup() = default;
  StreamGroup(const StreamGroup&) = delete;
  StreamGroup& operator=(const StreamGroup&) = delete;

  const ctran::gpu::Runtime& runtime() const { return streams_.runtime; }
  const at::Device& device() const { return streams_.device; }
  int deviceIndex() const { return device().has_index() ? device().index() : 0; }
  const std::string& name() const { return streams_.name; }
  int rank() const { return streams_.rank; }
  int size() const { return streams_.size; }
  ErrorMonitor& monitor() const { return *streams_.monitor; }
  std::chrono::milliseconds checkInterval() const { return streams_.checkInterval; }
  std::chrono::milliseconds idleInterval() const { return streams_.idleInterval; }

  /// Not in a child that this process has forked, where a copy must leave the others alone.
  bool belongsHere() const { return ctran::processToken() == process_; }
  /// Throws the error that broke the group, if one has.
  void requireWhole() const;
  bool isBroken() const { return broken_; }
  /// What broke the group, if something has.
  std::optional<ctran::Error> error() const;
  /// From now on the group is broken: what is on its way ends with the error, kernels too. The
  /// first error stays. `tellOthers`: the other ranks, as far as a backend does that.
  void breakWith(const ctran::Error& error, bool tellOthers = true);

  Stream currentStream() const { return stream::currentStream(device()); }
  Stream ownStream();
  void copy(void* to, const void* from, size_t bytes, Stream stream) const;
  const std::shared_ptr<ctran::gpu::EventPool>& events() const { return events_; }
  uint64_t nextSequence() { return ++issued_; }
  uint64_t issued() const { return issued_; }

  /// Where an operation goes: on the current stream or, with `async_op`, on the communicator's,
  /// behind what the current one holds; while that captures, always on it. The device is current.
  Place place(bool async_op);
  /// The work of what has been put there and is not captured, which is looked after from now on.
  /// `hold` makes what it keeps; `awaited`: the ranks without which it does not end, where they are
  /// known.
  c10::intrusive_ptr<TorchWork> finish(OpName op, const Place& place, uint64_t sequence,
                                       std::chrono::milliseconds timeout,
                                       const std::function<std::shared_ptr<void>()>& hold,
                                       std::vector<int> awaited = {});
  /// Whether nothing is on its way.
  virtual bool isIdle() const;
  /// Notes what has ended, and whose time is over; whether nothing goes on. By the watchdog; never
  /// throws.
  virtual bool patrol() = 0;

  /// Whether operations whose work is over have done what they should: kernels that were told to
  /// give up end, too.
  virtual bool isSound() const { return true; }
  /// Breaks the group if something is known to be wrong.
  virtual void diagnose() {}

  /// Keeps `held` for as long as the graph that `stream` captures exists.
  void keepWithGraph(Stream stream, std::shared_ptr<void> held);
  bool isKept() const { return kept_ > 0; }

  /// Waits, under HostWait, until all that was issued has ended or failed.
  void drain();

  /// Calls `release`, if somebody holds it, once the group is broken: for what waits on streams
  /// for other reasons than kernels, which end by themselves.
  void atEnd(std::weak_ptr<std::function<void()>> release);

 protected:
  struct Queue {
    Stream stream;
    std::deque<std::shared_ptr<Operation>> operations;
  };

  [[noreturn]] void throwError() const;
  /// Looks after an operation that has been issued on `stream`.
  void watch(Stream stream, std::shared_ptr<Operation> operation);
  void retireEnded();
  /// The earliest operation whose deadline has passed, if it has not ended after all.
  std::shared_ptr<Operation> findLate(Clock::time_point now) const;
  void releaseAll();
  /// Once, when the group has broken: ends what runs on the device, and releases all.
  virtual void endKernels() = 0;
  /// Tells the other ranks why the group has broken; ready when that is done, or cannot be. At
  /// once: nobody may hold the group for long, and the process may be about to end.
  virtual std::future<bool> announce(const ctran::Error&) { return {}; }
  /// Whether some thread will see an error without looking at a work.
  virtual bool isCalling() const { return false; }
  /// What runs in the replay of a graph: it has no work, but may be asked for by the next call.
  virtual std::optional<OpName> replayed() { return std::nullopt; }

  mutable std::mutex errorMutex_;
  std::optional<ctran::Error> error_;
  std::atomic<bool> broken_{false};
  mutable std::mutex queueMutex_;
  std::vector<Queue> queues_;  ///< one for each stream; each ends in order

 private:
  void failOperations(const ctran::Error& error, std::future<bool> told);

  const StreamSetup streams_;
  const uint64_t process_ = ctran::processToken();
  const std::shared_ptr<ctran::gpu::EventPool> events_;
  std::optional<ctran::gpu::OwnStream> ownStream_;
  std::vector<std::weak_ptr<std::function<void()>>> releases_;  ///< guarded by errorMutex_
  std::atomic<uint64_t> issued_{0};
  std::atomic<int> kept_{0};  ///< captured operations whose graphs exist
};

/// "all_reduce of communicator 'x' (rank 0 of 2)".
std::string describe(OpName op, const StreamGroup& group);

}  // namespace torch::comms::stream
