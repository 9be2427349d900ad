#pragma once

#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

namespace torch::comms {

enum class WorkStatus : uint8_t { NOT_STARTED, INPROGRESS, COMPLETED, TIMEDOUT, ERROR };

std::string_view toString(WorkStatus status);

/// One operation of a communicator. All methods may be called from any thread.
class TorchWork : public c10::intrusive_ptr_target {
 public:
  using Hook = std::function<void()>;

  ~TorchWork() override;

  /// Never blocks.
  virtual WorkStatus status() const = 0;

  /// Whether the operation has ended, well or not; never blocks. After a failure `wait` throws.
  bool isCompleted() const {
    const WorkStatus now = shownStatus();
    return now != WorkStatus::NOT_STARTED && now != WorkStatus::INPROGRESS;
  }

  /// `status`, or what `setStatus` has said.
  WorkStatus shownStatus() const {
    const std::optional<WorkStatus> said = said_.load(std::memory_order_relaxed);
    return said ? *said : status();
  }
  /// From now on `shownStatus` and `isCompleted` say this, whatever becomes of the operation, which
  /// waits and hooks still follow: for tests of what looks at works. Throws for
  /// TorchWorkCompleted::shared.
  void setStatus(WorkStatus status);

  /// Makes the result usable: for tensors of the CPU blocks until the operation has ended, for
  /// those of a GPU orders the current stream behind it. Throws the error of a failed operation.
  void wait() { waitWith(&TorchWork::doWait, std::nullopt); }

  /// As `wait`, blocking at most this long; false when the operation has not ended by then (it goes
  /// on). Throws the error of a failed operation.
  bool wait(std::chrono::milliseconds limit) { return waitWith(&TorchWork::doWait, limit); }

  /// Blocks the calling thread until the operation has ended, also on a GPU. Throws like `wait`.
  void waitBlocking() { waitWith(&TorchWork::doWaitBlocking, std::nullopt); }

  /// The error of a failed operation, else null. Never blocks. Whoever reads an error has seen it:
  /// see CommOptions::abort_process_on_timeout_or_error.
  virtual std::exception_ptr exception() const = 0;
  /// Of a receive from any rank that has completed: who has sent it; -1 of other works.
  virtual int sourceRank() const { return -1; }

  /// `callback` is called once when the operation ends, on the thread that ended it, or at once if
  /// it has. It must not block, wait or throw.
  virtual void setCallback(Hook callback) = 0;

  // Hooks, called in the order of their registration. What has happened already is told at once.

  /// When the operation starts, on the thread that has started it. Like a callback it must not
  /// block, wait or throw. An operation of which this cannot be told starts when it ends.
  void registerWorkStartHook(Hook hook) { setStartCallback(std::move(hook)); }
  /// When the operation ends: `setCallback`.
  void registerWorkEndHook(Hook hook) { setCallback(std::move(hook)); }
  /// At every wait, on the waiting thread: before it, and after one that has found that the
  /// operation has succeeded. What they throw, the wait throws. Not for TorchWorkCompleted::shared.
  void registerWorkWaitPreHook(Hook hook) { addWaitHook(std::move(hook), /*before=*/true); }
  void registerWorkWaitPostHook(Hook hook) { addWaitHook(std::move(hook), /*before=*/false); }

 protected:
  /// `wait`, with or without a limit.
  virtual bool doWait(std::optional<std::chrono::milliseconds> limit) = 0;
  virtual bool doWaitBlocking(std::optional<std::chrono::milliseconds> limit) {
    return doWait(limit);
  }
  virtual void setStartCallback(Hook callback);
  /// Adds a hook of waits.
  virtual void addWaitHook(Hook hook, bool before);

 private:
  struct WaitHooks;
  using Limit = std::optional<std::chrono::milliseconds>;

  bool waitWith(bool (TorchWork::*wait)(Limit), Limit limit) {
    if (waitHooks_.load(std::memory_order_acquire) == nullptr) [[likely]]
      return (this->*wait)(limit);
    return waitHooked(wait, limit);
  }
  bool waitHooked(bool (TorchWork::*wait)(Limit), Limit limit);

  std::atomic<std::optional<WorkStatus>> said_{std::nullopt};
  std::atomic<WaitHooks*> waitHooks_{nullptr};  ///< made for the first of them
};

/// The work of an operation that had succeeded before it returned.
class TorchWorkCompleted final : public TorchWork {
 public:
  WorkStatus status() const override { return WorkStatus::COMPLETED; }
  std::exception_ptr exception() const override { return nullptr; }
  void setCallback(Hook callback) override { callback(); }

  /// One object serves all operations of communicators without hooks: it has no state.
  static const c10::intrusive_ptr<TorchWork>& shared();

 protected:
  bool doWait(std::optional<std::chrono::milliseconds>) override { return true; }
  void addWaitHook(Hook hook, bool before) override;
};

/// The work of an operation that is a function, run on a thread of its own that takes no signals.
///
/// What the function throws is the error of the operation. The last reference to the work waits for
/// the function, under HostWait, unless it goes on that thread.
class TorchWorkThread final : public TorchWork {
 public:
  /// Throws ctran::Error (System) if there are no more threads.
  explicit TorchWorkThread(std::function<void()> function);
  ~TorchWorkThread() override;

  WorkStatus status() const override;
  std::exception_ptr exception() const override;
  void setCallback(Hook callback) override;

 protected:
  bool doWait(std::optional<std::chrono::milliseconds> limit) override;

 private:
  struct State;

  const std::shared_ptr<State> state_;  ///< shared with the thread
};

/// How the program that hosts this library takes part in waits; the Python bindings install theirs
/// once. Backends use it through HostWait. All may be called on any thread.
struct HostRuntime {
  /// Before a thread blocks: releases what others need meanwhile (the interpreter lock).
  void* (*release)() = nullptr;
  /// After it, with what `release` returned.
  void (*acquire)(void* released) = nullptr;
  /// Now and then while blocked, between `release` and `acquire`; may throw to end the wait.
  void (*checkInterrupts)() = nullptr;
  /// Calls with the interpreter lock, for which it may have to wait: for ever when the interpreter
  /// goes.
  void (*callHolding)(void (*function)(void* argument), void* argument) = nullptr;
};

void setHostRuntime(const HostRuntime& runtime);
const HostRuntime& hostRuntime();

/// Brackets a blocking section: releases on construction, takes back on destruction.
class HostWait {
 public:
  HostWait() : state_(hostRuntime().release ? hostRuntime().release() : nullptr) {}
  ~HostWait() {
    if (hostRuntime().acquire) hostRuntime().acquire(state_);
  }
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;

  /// May throw (Ctrl-C). Call about ten times a second while blocked.
  static void checkInterrupts() {
    if (hostRuntime().checkInterrupts) hostRuntime().checkInterrupts();
  }

 private:
  void* state_;
};

}  // namespace torch::comms
