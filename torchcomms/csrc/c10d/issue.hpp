#pragma once

#include <chrono>
#include <comms/torchcomms/BackendWrapper.hpp>
#include <mutex>
#include <vector>

#include "torchcomms/csrc/c10d/staging.hpp"
#include "torchcomms/csrc/c10d/work_wrapper.hpp"
#include "torchcomms/csrc/combined_work.hpp"

namespace torch::comms {

/// What all calls of c10d have in common.
struct BackendWrapper::Call {
  c10d::OpType type;
  OpName name;
  std::chrono::milliseconds timeout;  ///< kNoTimeout: the communicator's
  bool asyncOp;

  template <typename Given>
  static Call of(c10d::OpType type, OpName name, const Given& opts) {
    return {type, name, std::max(opts.timeout, kNoTimeout), opts.asyncOp};
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
  StagedOutputs outputs(results, /*read=*/true);
  c10::intrusive_ptr<TorchWork> work;
  uint64_t sequence;
  bool coalesced = false;
  {
    const std::lock_guard lock(issuing_);
    sequence = ++sequence_;
    work = issue(outputs.tensors());
    coalesced = coalescing_ != nullptr;
    if (coalesced) coalescing_->works.push_back(work);
  }
  if (outputs.needed()) {
    work->wait();
    outputs.copyBack();
  } else if (!call.asyncOp && !coalesced) {
    work->wait();
  }
  return wrap(call, sequence, std::move(results), std::move(work));
}

}  // namespace torch::comms
