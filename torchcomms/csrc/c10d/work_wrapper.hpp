#pragma once

#include <chrono>
#include <comms/torchcomms/BackendWrapper.hpp>
#include <comms/torchcomms/TorchWork.hpp>
#include <functional>
#include <map>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace torch::comms {

/// A TorchWork as a work of torch.distributed.
class WorkWrapper final : public c10d::Work {
 public:
  struct Facts {
    int rank = -1;
    c10d::OpType type = c10d::OpType::UNKNOWN;
    OpName name = OpName::barrier;
    uint64_t sequence = 0;
    std::chrono::milliseconds timeout{0};
  };

  WorkWrapper(c10::intrusive_ptr<TorchWork> work, const Facts& facts,
              std::vector<at::Tensor> results);

  bool isCompleted() override { return work_->isCompleted(); }
  bool isSuccess() const override { return work_->status() == WorkStatus::COMPLETED; }
  std::exception_ptr exception() const override { return work_->exception(); }
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return results_; }
  void synchronize() override { work_->wait(); }
  /// With a timeout: throws when the operation has not ended by then; it goes on.
  bool wait(std::chrono::milliseconds timeout) override;
  /// Of the results, in a list. It ends on a thread of its own, so that callbacks may block, wait
  /// and call Python. Fails with the operation's error.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  /// Of a WorkResult; never fails.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  uint64_t getSequencenumber() const override { return facts_.sequence; }
#if TORCHCOMMS_TORCH_SINCE(9)
  void blockCurrentStream() override { work_->wait(); }
#endif
#if TORCHCOMMS_TORCH_SINCE(14)
  std::chrono::milliseconds getTimeout() const override { return facts_.timeout; }
#endif
#if TORCHCOMMS_TORCH_SINCE(15)
  uint64_t getCompletionKey() const override { return key_; }
#endif

  uint64_t key() const { return key_; }

 private:
  const c10::intrusive_ptr<TorchWork> work_;
  const Facts facts_;
  const std::vector<at::Tensor> results_;
  const uint64_t key_;  ///< of this work alone, in this process
  std::mutex mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;        ///< guarded by mutex_
  c10::intrusive_ptr<c10::ivalue::Future> futureResult_;  ///< guarded by mutex_
};

/// The hooks that hear of operations that have completed. Shared with the operations.
struct CompletionHooks {
  std::mutex mutex;
#if TORCHCOMMS_TORCH_SINCE(15)
  /// Guarded by mutex. Hooks may be of Python: they are called, and go, without it.
  std::map<int64_t, std::shared_ptr<const c10d::CompletionHook>> hooks;
#endif
};

}  // namespace torch::comms
