#pragma once

#include <atomic>
#include <chrono>
#include <comms/torchcomms/TorchCommTypes.hpp>
#include <comms/torchcomms/TorchWork.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ctran/base/error.h"
#include "torchcomms/csrc/backends/nccl/bulletin.hpp"
#include "torchcomms/csrc/backends/nccl/current_stream.hpp"
#include "torchcomms/csrc/backends/nccl/hints.hpp"
#include "torchcomms/csrc/backends/nccl/library.hpp"
#include "torchcomms/csrc/error_monitor.hpp"

namespace torch::comms::nccl {

class Operation;
using Clock = std::chrono::steady_clock;

/// What a group is made of besides its handle.
struct GroupSetup {
  const Library& library;
  const ctran::gpu::Runtime& runtime;
  at::Device device;
  std::string name;
  int rank = 0;
  int size = 1;
  Hints hints;
  bool highPriority = false;
  std::shared_ptr<ErrorMonitor> monitor;
  std::shared_ptr<Bulletin> bulletin;  ///< null for one rank
};

/// A communicator of the library and all that goes on with it. Shared by the backend, its works and
/// the watchdog; lives until the last operation has ended and the last graph with one has gone.
///
/// The handle is used under `inside_`, for as long as one call of the library takes. Communicators
/// are made non-blocking, so that is short, and an abort from another thread finds its moment. With
/// the hint blocking=1 a call may wait for other ranks in there.
class Group : public std::enable_shared_from_this<Group> {
 public:
  explicit Group(GroupSetup setup);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const GroupSetup& setup() const { return setup_; }
  const Library& library() const { return setup_.library; }
  const ctran::gpu::Runtime& runtime() const { return setup_.runtime; }
  int rank() const { return setup_.rank; }
  int size() const { return setup_.size; }
  ErrorMonitor& monitor() const { return *setup_.monitor; }

  /// Makes the handle; collective. Throws ctran::Error, at the deadline at the latest.
  void create(const UniqueId& id, Clock::time_point deadline, std::chrono::milliseconds timeout);
  /// As `create`, as a part of `parent`, or of none: then nothing is made. Collective over it.
  void splitFrom(Group& parent, int color, int key, Clock::time_point deadline,
                 std::chrono::milliseconds timeout);
  static void splitOff(Group& parent, Clock::time_point deadline,
                       std::chrono::milliseconds timeout);

  /// Calls the library: `calls(comm)` puts operations on streams, as one group if `grouped`.
  /// Returns when the library has taken them over. Throws ctran::Error; arguments that the library
  /// refuses leave the group as it was, all else breaks it.
  void issue(OpName op, bool grouped, Clock::time_point deadline,
             const std::function<void(Comm)>& calls);
  /// Throws ctran::Error if the library has refused.
  void check(Result result, const char* function) const;

  /// Throws the error that broke the group, if one has.
  void requireWhole() const;
  bool isBroken() const { return broken_; }
  /// From now on the group is broken: what is on its way ends with the error, kernels too. The
  /// first error stays. `announce`: the other ranks are told.
  void breakWith(const ctran::Error& error, bool announce = true);

  Stream currentStream() const { return nccl::currentStream(setup_.device); }
  Stream ownStream();
  void copy(void* to, const void* from, size_t bytes, Stream stream) const;
  const std::shared_ptr<ctran::gpu::EventPool>& events() const { return events_; }
  uint64_t nextSequence() { return ++issued_; }
  uint64_t issued() const { return issued_; }

  /// Looks after an operation that has been issued on `stream`.
  void watch(Stream stream, std::shared_ptr<Operation> operation);
  /// Whether nothing is on its way.
  bool isIdle() const;
  /// Notes what has ended, and whose time is over. By the watchdog; never throws.
  void patrol();

  /// Keeps `held` for as long as the graph that `stream` captures exists.
  void keepWithGraph(Stream stream, std::shared_ptr<void> held);

  /// Waits for what is on its way, then leaves. Collective.
  void finalize(Clock::time_point deadline, std::chrono::milliseconds timeout);
  /// Ends everything at once.
  void close();

 private:
  struct Queue {
    Stream stream;
    std::deque<std::shared_ptr<Operation>> operations;
  };

  Config config() const;
  int deviceIndex() const;
  /// Polls until the library has done what it was asked for. `what` is for the error.
  void settle(const std::function<std::string()>& what, Clock::time_point deadline,
              std::chrono::milliseconds timeout);
  bool isUsable();
  [[noreturn]] void throwError() const;
  void retireEnded();
  void leave(Clock::time_point deadline, std::chrono::milliseconds timeout);
  ctran::Error translated(Result result, const std::string& what) const;
  ctran::Error timedOut(const std::string& what, std::chrono::milliseconds timeout) const;
  void lookForErrors();
  void lookAtDeadlines(Clock::time_point now);
  void lookAtBulletin(Clock::time_point now);
  void failOperations(const ctran::Error& error);
  void abortHandle();

  const GroupSetup setup_;
  const std::shared_ptr<ctran::gpu::EventPool> events_;
  std::optional<ctran::gpu::OwnStream> ownStream_;
  std::timed_mutex inside_;  ///< held while the library is called
  Comm handle_ = nullptr;    ///< guarded by inside_
  bool unsettled_ = false;   ///< guarded by inside_: a wait for the library was interrupted
  std::atomic<bool> broken_{false};
  mutable std::mutex errorMutex_;
  std::optional<ctran::Error> error_;
  std::atomic<int> calling_{0};  ///< threads that will see an error, as they are in `issue`
  std::atomic<uint64_t> issued_{0};
  mutable std::mutex queueMutex_;
  std::vector<Queue> queues_;  ///< one for each stream; each ends in order
  std::atomic<int> kept_{0};   ///< captured operations whose graphs exist
  bool announce_ = false;      ///< guarded by errorMutex_
  Clock::time_point bulletinRead_{};
};

/// "all_reduce of communicator 'x' (rank 0 of 2)".
std::string describe(OpName op, const Group& group);

}  // namespace torch::comms::nccl
