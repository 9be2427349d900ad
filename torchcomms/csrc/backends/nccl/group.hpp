#pragma once

#include <atomic>
#include <chrono>
#include <comms/torchcomms/TorchCommTypes.hpp>
#include <comms/torchcomms/TorchWork.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ctran/base/error.h"
#include "torchcomms/csrc/backends/nccl/bulletin.hpp"
#include "torchcomms/csrc/backends/nccl/hints.hpp"
#include "torchcomms/csrc/backends/nccl/library.hpp"
#include "torchcomms/csrc/backends/stream/group.hpp"
#include "torchcomms/csrc/backends/stream/operation.hpp"
#include "torchcomms/csrc/error_monitor.hpp"

namespace torch::comms::nccl {

using stream::Clock;
using stream::Operation;

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
/// a kind makes connections, and may wait for other ranks there; the watchdog looks after that. A
/// non-blocking communicator (hint blocking=0) never waits in the library, but makes a thread for
/// every operation: measured on H200, 63 us of CPU time instead of 9.
class Group final : public stream::StreamGroup {
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
  /// refuses leave the group as it was, all else breaks it.
  void issue(OpName op, bool grouped, Clock::time_point deadline,
             const std::function<void(Comm)>& calls);
  /// Throws ctran::Error if the library has refused.
  void check(Result result, const char* function) const;

  /// Of memory that will be used again and again; null if the communicator is broken.
  void* registerMemory(void* address, size_t bytes);
  void deregisterMemory(void* handle);

  /// Notes what has ended, and whose time is over. By the watchdog; never throws.
  void patrol() override;

  /// Waits for what is on its way, then leaves. Collective.
  void finalize(Clock::time_point deadline, std::chrono::milliseconds timeout);
  /// Ends everything at once.
  void close();

 private:
  class Inside;
  Config config() const;
  /// `child` null: this rank joins none.
  void askToSplit(const std::shared_ptr<Group>& child, int color, int key,
                  Clock::time_point deadline, std::chrono::milliseconds timeout);
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
  void lookForErrors();
  void lookAtDeadlines(Clock::time_point now);
  void lookAtCall(Clock::time_point now);
  /// How long the call of the library that goes on has taken.
  Clock::duration callAge(Clock::time_point now) const;
  void lookAtBulletin(Clock::time_point now);
  void endKernels() override { abortHandle(); }
  bool isCalling() const override { return calling_ > 0; }
  void abortHandle();
  std::shared_ptr<Group> self() { return std::static_pointer_cast<Group>(shared_from_this()); }

  const GroupSetup setup_;
  std::timed_mutex inside_;      ///< held while the library is called
  Comm handle_ = nullptr;        ///< guarded by inside_
  bool unsettled_ = false;       ///< guarded by inside_: a wait for the library was interrupted
  std::atomic<int> calling_{0};  ///< threads that will see an error, as they are in `issue`
  std::atomic<int> errands_{0};  ///< threads of runBounded
  /// When the call of the library began that goes on, if one does; which it is, and its timeout.
  std::atomic<Clock::duration::rep> callStart_{0};
  std::atomic<OpName> callOp_{OpName::barrier};
  std::atomic<std::chrono::milliseconds::rep> callTimeout_{0};
  Clock::time_point bulletinRead_{};
};

}  // namespace torch::comms::nccl
