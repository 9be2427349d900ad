#pragma once

#include <atomic>
#include <chrono>
#include <comms/torchcomms/TorchCommTypes.hpp>
#include <comms/torchcomms/TorchWork.hpp>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ctran/os/process.h"
#include "torchcomms/csrc/error_monitor.hpp"

namespace torch::comms {

/// One call, as its C10dWork, the waiting caller, and the threads that carry it out share it. A
/// batch of sends and receives has parts; it ends with the last of them, or with the first that
/// fails. All methods may be called from any thread.
class C10dOperation {
 public:
  C10dOperation(OpName op, size_t parts, std::shared_ptr<ErrorMonitor> monitor)
      : op_(op), monitor_(std::move(monitor)), left_(parts) {}

  void started();
  /// Is called before the operation ends.
  void cameFrom(int rank) { source_.store(rank, std::memory_order_relaxed); }
  /// Returns the sender of a receive from any rank; -1 otherwise.
  int source() const { return source_.load(std::memory_order_relaxed); }
  void partEnded(const std::exception_ptr& error);

  WorkStatus status() const;
  /// Marks the error as seen.
  std::exception_ptr exception() const;
  /// Blocks under HostWait until the operation has ended or `limit` has passed. Returns whether it
  /// has ended. Throws its error.
  bool wait(std::optional<std::chrono::milliseconds> limit);
  void setCallback(std::function<void()> callback);
  void setStartCallback(std::function<void()> callback);
  /// Is called when the program has let go of the work.
  void released();

 private:
  void block(std::optional<std::chrono::milliseconds> limit);
  /// Has to be called with the lock.
  bool ended() const { return status_ > WorkStatus::INPROGRESS; }

  const OpName op_;
  const uint64_t process_ = ctran::processToken();
  const std::shared_ptr<ErrorMonitor> monitor_;
  std::atomic<int> source_{-1};
  mutable std::mutex mutex_;
  std::condition_variable endedCondition_;
  WorkStatus status_ = WorkStatus::NOT_STARTED;
  size_t left_;
  std::exception_ptr error_;
  int waiting_ = 0;        ///< number of threads that will see how it ends
  bool reachable_ = true;  ///< the program has its work
  std::vector<std::function<void()>> startCallbacks_;
  std::vector<std::function<void()>> callbacks_;
};

class C10dWork final : public TorchWork {
 public:
  explicit C10dWork(std::shared_ptr<C10dOperation> operation) : operation_(std::move(operation)) {}
  ~C10dWork() override { operation_->released(); }

  WorkStatus status() const override { return operation_->status(); }
  std::exception_ptr exception() const override { return operation_->exception(); }
  int sourceRank() const override { return operation_->source(); }
  void setCallback(Hook callback) override { operation_->setCallback(std::move(callback)); }

 protected:
  bool doWait(std::optional<std::chrono::milliseconds> limit) override {
    return operation_->wait(limit);
  }
  void setStartCallback(Hook callback) override {
    operation_->setStartCallback(std::move(callback));
  }

 private:
  const std::shared_ptr<C10dOperation> operation_;
};

}  // namespace torch::comms
