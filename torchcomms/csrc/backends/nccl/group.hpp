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
#include "torchcomms/csrc/backends/nccl/bulletin.hpp"
#include "torchcomms/csrc/backends/nccl/current_stream.hpp"
#include "torchcomms/csrc/backends/nccl/hints.hpp"
#include "torchcomms/csrc/backends/nccl/library.hpp"
#include "torchcomms/csrc/backends/nccl/replays.hpp"
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
/// The handle is used under `inside_`, for as long as one call of the library takes. What always
/// waits for other ranks (creating, splitting, finalizing) runs on a thread of its own, for which
/// the caller waits until the deadline. Operations are issued on the caller's thread: the first of
/// a kind makes connections, and may wait for other ranks there; the watchdog looks after that, as
/// after all that goes on once it has been issued. A non-blocking communicator (hint blocking=0)
/// never waits in the library, but makes a thread for every operation: measured on H200, 63 us of
/// CPU time instead of 9.
///
/// group.cpp is a group's life, calls.cpp its calls of the library, failure.cpp how it ends when
/// something has gone wrong, patrol.cpp how the watchdog sees that.
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
  /// refuses leave the group as it was, all else breaks it, a timeout too.
  void issue(OpName op, bool grouped, std::chrono::milliseconds timeout,
             const std::function<void(Comm)>& calls);
  /// Throws ctran::Error if the library has refused.
  void check(Result result, const char* function) const;

  /// Throws the error that broke the group, if one has.
  void requireWhole() const;
  bool isBroken() const { return broken_; }
  /// From now on the group is broken: what is on its way ends with the error, and soon its kernels.
  /// The first error stays. `announce`: the other ranks are told.
  void breakWith(const ctran::Error& error, bool announce = true);
  /// Waits for a while until the kernels of a broken group have ended.
  void awaitEnd();

  Stream currentStream() const { return nccl::currentStream(setup_.device); }
  Stream ownStream();
  void copy(void* to, const void* from, size_t bytes, Stream stream) const;
  const std::shared_ptr<ctran::gpu::EventPool>& events() const { return events_; }
  uint64_t nextSequence() { return ++issued_; }
  uint64_t issued() const { return issued_; }

  /// Of memory that will be used again and again; null if the communicator is broken.
  void* registerMemory(void* address, size_t bytes);
  void deregisterMemory(void* handle);

  /// Looks after an operation that has been issued on `stream`.
  void watch(Stream stream, std::shared_ptr<Operation> operation);
  /// Whether nothing is on its way.
  bool isIdle() const;
  /// Notes what has ended, and whose time is over; whether nothing goes on. By the watchdog; never
  /// throws.
  bool patrol();

  /// Keeps both for as long as the graph that `stream` captures exists.
  void keepWithGraph(Stream stream, std::shared_ptr<void> held,
                     std::shared_ptr<Replays::Captured> captured);
  Replays& replays() { return replays_; }

  /// Waits for what is on its way, then leaves. Collective.
  void finalize(Clock::time_point deadline, std::chrono::milliseconds timeout);
  /// Ends everything at once.
  void close();

 private:
  class Inside;
  /// What has not ended in its time.
  struct Late {
    std::string what;
    OpName op;
    uint64_t sequence;
    std::chrono::milliseconds timeout;
  };
  /// The search for the ranks that are to blame.
  struct Verdict {
    uint64_t sequence;
    Clock::time_point until;
    std::future<Bulletin::Missing> answer;
  };
  struct Queue {
    Stream stream;
    std::deque<std::shared_ptr<Operation>> operations;
  };

  Config config() const;
  /// `child` null: this rank joins none.
  void askToSplit(const std::shared_ptr<Group>& child, int color, int key,
                  Clock::time_point deadline, std::chrono::milliseconds timeout);
  int deviceIndex() const;
  /// Whether the library has taken the operations over; else it is still at it.
  bool hand(OpName op, bool grouped, const std::function<void(Comm)>& calls);
  bool isSettled(const std::function<std::string()>& what);
  /// Polls until the library has done what it was asked for. `what` is for the error.
  void settle(const std::function<std::string()>& what, Clock::time_point deadline,
              std::chrono::milliseconds timeout);
  /// Runs `call`, which may wait for other ranks, on a thread of its own.
  void runBounded(const std::function<void()>& call, const std::function<std::string()>& what,
                  Clock::time_point deadline, std::chrono::milliseconds timeout);
  bool isUsable();
  [[noreturn]] void throwError() const;
  void retireEnded();
  void leave(Clock::time_point deadline, std::chrono::milliseconds timeout);
  ctran::Error translated(Result result, const std::string& what) const;
  ctran::Error timedOut(const std::string& what, std::chrono::milliseconds timeout) const;
  void failOperations(const ctran::Error& error);
  /// Ends the handle on a thread of its own: it waits for the device, whose other kernels may have
  /// to be ended first.
  void startAbort(std::shared_ptr<Group> self);
  Comm takeHandle();

  // By the watchdog.
  void lookForErrors();
  std::optional<Late> findLate(Clock::time_point now);
  void lookAtDeadlines(Clock::time_point now);
  void lookAtBulletin(Clock::time_point now);
  void tellOthers();
  /// How long the call of the library that goes on has taken.
  Clock::duration callAge(Clock::time_point now) const;
  /// Whether something has taken longer than it does when all is well.
  bool waitsLong(Clock::time_point now);

  const GroupSetup setup_;
  const std::shared_ptr<ctran::gpu::EventPool> events_;
  std::optional<ctran::gpu::OwnStream> ownStream_;
  std::timed_mutex inside_;  ///< held while the library is called
  Comm handle_ = nullptr;    ///< guarded by inside_, but for an abort
  bool leaving_ = false;     ///< guarded by inside_: the library takes it apart
  bool unsettled_ = false;   ///< guarded by inside_: a wait for it was interrupted
  std::atomic<bool> broken_{false};
  mutable std::mutex errorMutex_;
  std::optional<ctran::Error> error_;
  std::atomic<int> calling_{0};     ///< threads that will see an error, as they are in `issue`
  std::shared_future<void> abort_;  ///< guarded by errorMutex_; ends with the handle's kernels
  /// When the call of the library began that goes on, if one does; which it is, and its timeout.
  std::atomic<Clock::duration::rep> callStart_{0};
  std::atomic<OpName> callOp_{OpName::barrier};
  std::atomic<std::chrono::milliseconds::rep> callTimeout_{0};
  std::atomic<uint64_t> issued_{0};
  mutable std::mutex queueMutex_;
  std::vector<Queue> queues_;  ///< one for each stream; each ends in order
  std::atomic<int> kept_{0};   ///< captured operations whose graphs exist
  Replays replays_;
  bool announce_ = false;  ///< guarded by errorMutex_
  // Of the watchdog.
  std::optional<Replays::Running> running_;
  std::optional<Verdict> verdict_;
  std::future<Bulletin::News> news_;
  Clock::time_point newsAsked_{};
};

/// "all_reduce of communicator 'x' (rank 0 of 2)".
std::string describe(OpName op, const Group& group);

}  // namespace torch::comms::nccl
