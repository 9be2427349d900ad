#pragma once

#include <algorithm>
#include <chrono>
#include <comms/torchcomms/BackendWrapper.hpp>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "torchcomms/csrc/c10d/callback_thread.hpp"
#include "torchcomms/csrc/c10d/copied_work.hpp"
#include "torchcomms/csrc/c10d/staging.hpp"
#include "torchcomms/csrc/c10d/work_wrapper.hpp"
#include "torchcomms/csrc/combined_work.hpp"
#include "torchcomms/csrc/longest_timeout.hpp"

namespace torch::comms {

/// What all calls of c10d have in common.
struct BackendWrapper::Call {
  c10d::OpType type;
  OpName name;
  std::chrono::milliseconds timeout;  ///< kNoTimeout: the communicator's
  bool asyncOp;

  template <typename Given>
  static Call of(c10d::OpType type, OpName name, const Given& opts) {
    return {type, name, bounded(opts.timeout), opts.asyncOp};
  }

  static std::chrono::milliseconds bounded(std::chrono::milliseconds timeout) {
    return std::clamp(timeout, kNoTimeout, kLongestTimeout);
  }

  template <typename Options>
  Options options() const {
    Options options;
    options.timeout = timeout;
    return options;
  }
};

/// What has been issued, or only asked for, since startCoalescing.
struct BackendWrapper::Coalescing {
  std::vector<c10::intrusive_ptr<TorchWork>> works;
  std::vector<P2POp> messages;
  std::vector<c10::intrusive_ptr<DeferredWork>> deferred;  ///< one per message
};

template <typename Issue>
BackendWrapper::WorkPtr BackendWrapper::collective(const Call& call, Tensors results, Issue issue) {
  c10::intrusive_ptr<TorchWork> work;
  uint64_t sequence;
  std::optional<StagedOutputs> outputs;
  bool waits;
  {
    const std::lock_guard lock(issuing_);
    for (const at::Tensor& t : results) settle(t);
    outputs.emplace(results, /*read=*/true);
    waits = !call.asyncOp && !coalescing_;
    // On a GPU a wait does not block, but orders the current stream.
    const bool copiesLater = outputs->needed() && !waits && comm_->getDevice().is_cpu();
    if (copiesLater) startCallbacks();
    sequence = ++sequence_;
    work = issue(outputs->tensors());
    if (copiesLater) work = copyLater(std::move(work), *std::exchange(outputs, std::nullopt));
    if (coalescing_) coalescing_->works.push_back(work);
  }
  const bool copies = outputs && outputs->needed();
  if (waits || copies) work->wait();
  if (copies) outputs->copyBack();
  return wrap(call, sequence, std::move(results), std::move(work));
}

}  // namespace torch::comms
