#pragma once

#include <atomic>
#include <chrono>
#include <comms/torchcomms/TorchCommTypes.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "ctran/os/process.h"
#include "torchcomms/csrc/error_monitor.hpp"

namespace torch::comms {

/// The c10d backend of a communicator, and whether it still works. The communicator shares it with
/// its queues, whose threads may outlive the communicator.
struct C10dGroup {
  c10::intrusive_ptr<c10d::Backend> backend;
  c10::intrusive_ptr<c10d::Store> store;  ///< used by this communicator alone
  std::string name;
  int rank = 0;
  int size = 1;
  std::shared_ptr<ErrorMonitor> monitor;
  const uint64_t process = ctran::processToken();
  std::mutex issuing;  ///< held by calls that issue; the c10d backend takes one at a time

  /// Whether this is the process that made it, not one that it has forked.
  bool isOwn() const { return process == ctran::processToken(); }
  void requireOwn() const;
  /// Throws the error that broke the communicator, if one has; also throws in a forked child.
  void requireWhole(OpName op) const;
  bool isBroken() const { return broken_; }
  /// Breaks the communicator from now on. The first error stays.
  void breakWith(const std::exception_ptr& error);
  /// Breaks the communicator when an exception of the host language (Ctrl-C) ends a call, because
  /// the call goes on in the backend.
  void interrupted(OpName op);

 private:
  std::atomic<bool> broken_{false};
  mutable std::mutex mutex_;
  std::exception_ptr error_;  ///< guarded by mutex_
};

/// One collective while it runs: it issues works of the c10d backend and waits for them.
class C10dCall {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  /// `interruptible`: the call is on a thread of the program, where Ctrl-C ends waits.
  C10dCall(C10dGroup& group, OpName op, std::chrono::milliseconds timeout, bool interruptible)
      : group_(group),
        op_(op),
        timeout_(timeout),
        deadline_(std::chrono::steady_clock::now() + timeout),
        interruptible_(interruptible) {}

  int rank() const { return group_.rank; }
  int size() const { return group_.size; }

  /// Returns c10d options of a collective, with the timeout.
  template <typename Options>
  Options options() const {
    Options made;
    made.timeout = timeout_;
    return made;
  }

  template <typename Issue>
  WorkPtr issue(Issue issue) const {
    const std::lock_guard lock(group_.issuing);
    return issue(*group_.backend);
  }
  void wait(const WorkPtr& work) const;

  template <typename Issue>
  void run(Issue issued) const {
    wait(issue(issued));
  }

  /// Runs `body`. What it throws breaks the group, and is thrown as a ctran::Error, unless it is an
  /// interruption.
  void carryOut(const std::function<void(const C10dCall&)>& body);

 private:
  void checkInterrupts() const;

  C10dGroup& group_;
  const OpName op_;
  const std::chrono::milliseconds timeout_;
  const std::chrono::steady_clock::time_point deadline_;
  const bool interruptible_;
  mutable bool interrupted_ = false;
};

}  // namespace torch::comms
