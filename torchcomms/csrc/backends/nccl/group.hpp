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
#include "torchcomms/csrc/backends/nccl/hints.hpp"
#include "torchcomms/csrc/backends/nccl/library.hpp"
#include "torchcomms/csrc/backends/nccl/out_of_band.hpp"
#include "torchcomms/csrc/error_monitor.hpp"

namespace torch::comms::nccl {

using ctran::Replays;
using ctran::gpu::Stream;
using Clock = ctran::StreamQueue::Clock;

/// What a group is made of, in addition to its handle.
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
  std::shared_ptr<OutOfBand> outOfBand;  ///< null for one rank
};

/// A communicator of the library, with its operations. The backend, its works and the watchdog
/// share it. It lives until the last operation has ended and the last graph with one has gone.
///
/// The handle is used under `inside_`, for as long as one call of the library takes. Calls that
/// always wait for other ranks (creating, splitting, finalizing) run on a thread of their own, for
/// which the caller waits until the deadline. Operations are issued on the caller's thread. The
/// first of a kind makes connections, and may wait for other ranks there; the watchdog looks after
/// that, as it does after every issued operation. A non-blocking communicator (hint blocking=0)
/// never waits in the library, but makes a thread for every operation: measured on H200, 63 us of
/// CPU time instead of 9.
///
/// group.cpp has a group's life, calls.cpp its calls of the library, failure.cpp how it ends after
/// a failure, inspection.cpp how the watchdog sees that.
class Group final : public ctran::StreamQueue, public std::enable_shared_from_this<Group> {
 public:
  explicit Group(GroupSetup setup);
  ~Group() override;

  const GroupSetup& setup() const { return setup_; }
  const Library& library() const { return setup_.library; }

  /// Makes the handle. Collective. Throws ctran::Error, at the deadline at the latest.
  void create(const UniqueId& id, Clock::time_point deadline, std::chrono::milliseconds timeout);
  /// Makes the handle as a part of `parent`; `splitOff` joins no part, and makes nothing.
  /// Collective over `parent`.
  void splitFrom(Group& parent, int color, int key, Clock::time_point deadline,
                 std::chrono::milliseconds timeout);
  static void splitOff(Group& parent, Clock::time_point deadline,
                       std::chrono::milliseconds timeout);

  /// Calls the library: `calls(comm)` puts operations on streams, as one group if `grouped`.
  /// Returns when the library has taken them over. Throws ctran::Error. Arguments that the library
  /// refuses leave the group as it was; every other error breaks it, a timeout too.
  void issue(OpName op, bool grouped, std::chrono::milliseconds timeout,
             const std::function<void(Comm)>& calls);
  /// Throws ctran::Error if the library has refused a call.
  void check(Result result, const char* function) const;

  /// Waits some time until the kernels of a broken group have ended.
  void awaitEnd();

  /// Registers memory that will be used again and again. Returns null if the communicator is
  /// broken.
  void* registerMemory(void* address, size_t bytes);
  void deregisterMemory(void* handle);

  std::shared_ptr<ctran::StreamQueue> share() override { return shared_from_this(); }
  bool isIdle() const override { return callStart_ == 0 && StreamQueue::isIdle(); }
  bool inspect() override;
  Replays& replays() { return replays_; }

  /// Waits for the operations that are under way, then leaves the communicator. Collective.
  void finalize(Clock::time_point deadline, std::chrono::milliseconds timeout);
  bool isFinalized() const { return finalized_; }
  /// Ends everything at once. Errors tell `why`, after the name of the communicator.
  void close(const std::string& why);

 private:
  class Inside;
  /// An operation or call that is late.
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
    std::future<OutOfBand::Missing> answer;
  };

  Config config() const;
  /// If `child` is null, this rank joins no part.
  void askToSplit(const std::shared_ptr<Group>& child, int color, int key,
                  Clock::time_point deadline, std::chrono::milliseconds timeout);
  /// Returns whether the library has taken the operations over; if not, it is still busy with them.
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
  void endKernels() override { startAbort(shared_from_this()); }
  std::function<void()> announce(const ctran::Error& error) override;
  bool isCalling() const override { return calling_ > 0; }
  std::optional<std::string_view> replayed() override;
  /// Ends the handle on a thread of its own, because that waits for the device, whose other kernels
  /// may have to be ended first. If `self` is null, the group's last owner has gone.
  void startAbort(std::shared_ptr<Group> self);
  Comm takeHandle();

  // What follows is called by the watchdog.
  void lookForErrors();
  std::optional<Late> findLateCall(Clock::time_point now);
  void lookAtDeadlines(Clock::time_point now);
  void checkOutOfBand(Clock::time_point now);
  /// Returns how long the current call of the library has taken.
  Clock::duration callAge(Clock::time_point now) const;
  /// Returns whether something takes longer than it does when all is well; kernels of the program
  /// may, unseen.
  bool waitsLong(Clock::time_point now);

  const GroupSetup setup_;
  std::timed_mutex inside_;  ///< held while the library is called
  Comm handle_ = nullptr;    ///< guarded by inside_, except for an abort
  bool leaving_ = false;     ///< guarded by inside_: the library is destroying the handle
  bool unsettled_ = false;   ///< guarded by inside_: a wait for it was interrupted
  bool finalized_ = false;   ///< if the handle still exists then, graphs use it
  /// Number of threads that will see an error, because they are in `issue`.
  std::atomic<int> calling_{0};
  std::shared_future<void> abort_;  ///< guarded by errorMutex_; ends with the handle's kernels
  /// When the current call of the library began, if there is one; its operation, and its timeout.
  std::atomic<Clock::duration::rep> callStart_{0};
  std::atomic<OpName> callOp_{OpName::barrier};
  std::atomic<std::chrono::milliseconds::rep> callTimeout_{0};
  Replays replays_;
  /// A part whose making failed; the library may still write its handle there.
  std::shared_ptr<Group> unborn_;
  // Used by the watchdog only.
  std::optional<Replays::Running> running_;
  std::optional<Verdict> verdict_;
  std::future<OutOfBand::News> news_;
  Clock::time_point newsAsked_{};
};

}  // namespace torch::comms::nccl
