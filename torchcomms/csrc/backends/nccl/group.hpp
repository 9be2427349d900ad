#pragma once

#include <atomic>
#include <chrono>
#include <comms/torchcomms/TorchCommTypes.hpp>
#include <comms/torchcomms/TorchWork.hpp>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/stream/replays.h"
#include "ctran/stream/stream_queue.h"
#include "torchcomms/csrc/backends/nccl/bulletin.hpp"
#include "torchcomms/csrc/backends/nccl/hints.hpp"
#include "torchcomms/csrc/backends/nccl/library.hpp"
#include "torchcomms/csrc/error_monitor.hpp"

namespace torch::comms::nccl {

using ctran::Replays;
using ctran::gpu::Stream;
using Clock = ctran::StreamQueue::Clock;

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
/// something has gone wrong, inspection.cpp how the watchdog sees that.
class Group final : public ctran::StreamQueue {
 public:
  explicit Group(GroupSetup setup);
  ~Group() override;

  const GroupSetup& setup() const { return setup_; }
  const Library& library() const { return setup_.library; }

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

  /// Waits for a while until the kernels of a broken group have ended.
  void awaitEnd();

  /// Of memory that will be used again and again; null if the communicator is broken.
  void* registerMemory(void* address, size_t bytes);
  void deregisterMemory(void* handle);

  bool isIdle() const override { return callStart_ == 0 && StreamQueue::isIdle(); }
  bool inspect() override;
  Replays& replays() { return replays_; }

  /// Waits for what is on its way, then leaves. Collective.
  void finalize(Clock::time_point deadline, std::chrono::milliseconds timeout);
  bool isFinalized() const { return finalized_; }
  /// Ends everything at once.
  void close();

 private:
  class Inside;
  /// What has not ended in its time.
  struct Late {
    std::string what;
    std::string_view op;
    uint64_t sequence;
    std::chrono::milliseconds timeout;
  };
  /// The search for the ranks that are to blame.
  struct Verdict {
    uint64_t sequence;
    Clock::time_point until;
    std::future<Bulletin::Missing> answer;
  };

  Config config() const;
  /// `child` null: this rank joins none.
  void askToSplit(const std::shared_ptr<Group>& child, int color, int key,
                  Clock::time_point deadline, std::chrono::milliseconds timeout);
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
  void leave(Clock::time_point deadline, std::chrono::milliseconds timeout);
  ctran::Error translated(Result result, const std::string& what) const;
  ctran::Error timedOut(const std::string& what, std::chrono::milliseconds timeout) const;
  void endKernels() override { startAbort(self()); }
  std::function<void()> announce(const ctran::Error& error) override;
  bool isCalling() const override { return calling_ > 0; }
  std::optional<std::string_view> replayed() override;
  std::shared_ptr<Group> self() { return std::static_pointer_cast<Group>(shared_from_this()); }
  /// Ends the handle on a thread of its own: it waits for the device, whose other kernels may have
  /// to be ended first. Without `self`, that of a group whose last owner has gone.
  void startAbort(std::shared_ptr<Group> self);
  Comm takeHandle();

  // By the watchdog.
  void lookForErrors();
  std::optional<Late> findLateCall(Clock::time_point now);
  void lookAtDeadlines(Clock::time_point now);
  void lookAtBulletin(Clock::time_point now);
  /// How long the call of the library that goes on has taken.
  Clock::duration callAge(Clock::time_point now) const;
  /// Whether something has taken longer than it does when all is well.
  bool waitsLong(Clock::time_point now);

  const GroupSetup setup_;
  std::timed_mutex inside_;         ///< held while the library is called
  Comm handle_ = nullptr;           ///< guarded by inside_, but for an abort
  bool leaving_ = false;            ///< guarded by inside_: the library takes it apart
  bool unsettled_ = false;          ///< guarded by inside_: a wait for it was interrupted
  bool finalized_ = false;          ///< and if the handle is still there, graphs have it
  std::atomic<int> calling_{0};     ///< threads that will see an error, as they are in `issue`
  std::shared_future<void> abort_;  ///< guarded by errorMutex_; ends with the handle's kernels
  /// When the call of the library began that goes on, if one does; which it is, and its timeout.
  std::atomic<Clock::duration::rep> callStart_{0};
  std::atomic<OpName> callOp_{OpName::barrier};
  std::atomic<std::chrono::milliseconds::rep> callTimeout_{0};
  Replays replays_;
  /// A part whose making failed: the library may yet write its handle there.
  std::shared_ptr<Group> unborn_;
  // Of the watchdog.
  std::optional<Replays::Running> running_;
  std::optional<Verdict> verdict_;
  std::future<Bulletin::News> news_;
  Clock::time_point newsAsked_{};
};

}  // namespace torch::comms::nccl
