#pragma once

#include <atomic>
#include <chrono>
#include <comms/torchcomms/TorchCommTypes.hpp>
#include <comms/torchcomms/TorchWork.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/gpu/runtime.h"

namespace torch::comms::stream {

class StreamGroup;

/// One operation that is on its way on a stream: what its work, waiting threads and the watchdog
/// share. All methods may be called from any thread.
class Operation {
 public:
  using Clock = std::chrono::steady_clock;

  /// `end` has been recorded behind the operation, on `stream`. `held` is let go of when it has
  /// ended, or when `issuer`, the stream that was current at the call, has been made to wait for
  /// it. No issuer: memory that is not freed in the order of a stream.
  Operation(OpName op, std::shared_ptr<StreamGroup> group, uint64_t sequence,
            std::chrono::milliseconds timeout, ctran::gpu::PooledEvent end,
            ctran::gpu::Stream stream, std::optional<ctran::gpu::Stream> issuer,
            std::shared_ptr<void> held);

  OpName op() const { return op_; }
  uint64_t sequence() const { return sequence_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  Clock::time_point start() const { return deadline_ - timeout_; }
  Clock::time_point deadline() const { return deadline_; }

  /// The ranks without which it does not end, if it says so; set before others see it.
  void setAwaited(std::vector<int> ranks) { awaited_ = std::move(ranks); }
  const std::vector<int>& awaited() const { return awaited_; }

  /// Looks whether it has ended; never blocks.
  WorkStatus status();
  /// Whether the work on the stream is over, also after a failure. Throws ctran::Error (System)
  /// when the device is lost.
  bool isOver() const;
  void complete();
  void fail(const ctran::Error& error);
  /// Lets go of the tensors.
  void release();

  std::exception_ptr exception();
  void throwIfFailed();
  /// Makes `stream` wait for the end; after that the issuer may have the memory of tensors again.
  void orderBehind(ctran::gpu::Stream stream);
  /// Blocks under HostWait until it has ended or `limit` has passed; whether it has. Throws its
  /// error.
  bool block(std::optional<std::chrono::milliseconds> limit);
  void setCallback(std::function<void()> callback);
  const std::shared_ptr<StreamGroup>& group() const { return group_; }

  bool isAwaited() const { return waiting_ > 0; }
  bool isReachable() const { return reachable_; }
  /// The program has let go of the work.
  void abandon();

 private:
  void ended(WorkStatus status, const ctran::Error* error);

  const OpName op_;
  const std::shared_ptr<StreamGroup> group_;
  const uint64_t sequence_;
  const std::chrono::milliseconds timeout_;
  const Clock::time_point deadline_;
  const ctran::gpu::PooledEvent end_;
  const ctran::gpu::Stream stream_;
  const std::optional<ctran::gpu::Stream> issuer_;
  std::vector<int> awaited_;
  std::atomic<WorkStatus> status_{WorkStatus::INPROGRESS};
  std::atomic<int> waiting_{0};  ///< threads that will see how it ends
  std::atomic<bool> reachable_{true};
  std::mutex mutex_;
  std::shared_ptr<void> held_;
  std::optional<ctran::Error> error_;
  std::vector<std::function<void()>> callbacks_;
};

/// The work of an operation on a stream.
class StreamWork final : public TorchWork {
 public:
  explicit StreamWork(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
  ~StreamWork() override { operation_->abandon(); }

  const std::shared_ptr<Operation>& operation() const { return operation_; }

  WorkStatus status() const override { return operation_->status(); }
  std::exception_ptr exception() const override { return operation_->exception(); }
  void setCallback(std::function<void()> callback) override {
    operation_->setCallback(std::move(callback));
  }

 protected:
  /// Without a limit orders the current stream behind the operation, with one blocks.
  bool doWait(std::optional<std::chrono::milliseconds> limit) override;
  bool doWaitBlocking(std::optional<std::chrono::milliseconds> limit) override;

 private:
  const std::shared_ptr<Operation> operation_;
};

}  // namespace torch::comms::stream
