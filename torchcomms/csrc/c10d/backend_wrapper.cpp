// What a BackendWrapper is; its collectives are in collectives.cpp.

#include <algorithm>
#include <comms/torchcomms/BackendWrapper.hpp>

#include "ctran/base/error.h"
#include "torchcomms/csrc/c10d/issue.hpp"
#include "torchcomms/csrc/c10d/window_wrapper.hpp"

namespace torch::comms {

BackendWrapper::BackendWrapper(std::shared_ptr<TorchComm> comm)
    : c10d::Backend(comm->getRank(), comm->getSize()),
      comm_(std::move(comm)),
      options_(c10::make_intrusive<Options>(std::string(comm_->getBackend()),
                                            comm_->getOptions().timeout)),
      hooks_(std::make_shared<CompletionHooks>()) {}

BackendWrapper::~BackendWrapper() {
  for (const auto& [id, handle] : abortHooks_) handle.remove();
}

BackendWrapper::WorkPtr BackendWrapper::wrap(const Call& call, uint64_t sequence, Tensors results,
                                             c10::intrusive_ptr<TorchWork> work) {
  auto made = c10::make_intrusive<WorkWrapper>(
      work, WorkWrapper::Facts{rank_, call.type, call.name, sequence, call.timeout},
      std::move(results));
#if TORCHCOMMS_TORCH_SINCE(15)
  const bool heard = [&] {
    const std::lock_guard lock(hooks_->mutex);
    return !hooks_->hooks.empty();
  }();
  if (heard) {
    const auto tell = [hooks = hooks_, work, key = made->key()] {
      if (work->status() != WorkStatus::COMPLETED) return;
      const auto present = [&] {
        const std::lock_guard lock(hooks->mutex);
        return hooks->hooks;
      }();
      for (const auto& [id, hook] : present) (*hook)({key, std::nullopt});
    };
    // What has ended already was not known to the hooks' consumer yet; it learns when it looks.
    if (!work->isCompleted()) work->setCallback(tell);
  }
#endif
  return made;
}

c10::intrusive_ptr<TorchWork> BackendWrapper::copyLater(c10::intrusive_ptr<TorchWork> work,
                                                        StagedOutputs outputs) {
  auto copied = c10::make_intrusive<CopiedWork>(std::move(work), std::move(outputs));
  copies_.push_back(copied->copy());
  return copied;
}

void BackendWrapper::settle(const at::Tensor& tensor) {
  copies_.remove_if([](const auto& copy) { return copy.expired(); });
  for (const auto& weak : copies_) {
    const auto copy = weak.lock();
    if (copy && copy->outputs.include(tensor)) copy->wait();
  }
}

at::Tensor BackendWrapper::readable(const at::Tensor& tensor) {
  settle(tensor);
  return contiguousInput(tensor);
}

BackendWrapper::Tensors BackendWrapper::readable(const Tensors& tensors) {
  Tensors inputs;
  inputs.reserve(tensors.size());
  for (const at::Tensor& t : tensors) inputs.push_back(readable(t));
  return inputs;
}

void BackendWrapper::startCoalescing() {
  const std::lock_guard lock(issuing_);
  // One that was never ended, as an error got in between, is forgotten.
  coalescing_ = std::make_unique<Coalescing>();
}

BackendWrapper::WorkPtr BackendWrapper::endCoalescing() {
  const std::lock_guard lock(issuing_);
  if (!coalescing_) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument, "endCoalescing without startCoalescing");
  }
  const std::unique_ptr<Coalescing> ended = std::move(coalescing_);
  auto works = std::move(ended->works);
  if (!ended->messages.empty()) {
    works.push_back(comm_->batch_op_issue(ended->messages, /*async_op=*/true));
    for (const auto& deferred : ended->deferred) deferred->issuedAs(works.back());
  }
  const Call call{c10d::OpType::COALESCED, OpName::batch_op_issue, kNoTimeout, true};
  return wrap(call, sequence_, {}, CombinedWork::of(std::move(works)));
}

BackendWrapper::WorkPtr BackendWrapper::exchange(P2POp::Type type, const Tensors& tensors, int peer,
                                                 int tag) {
  const bool sends = type == P2POp::Type::SEND;
  const OpName name = sends ? OpName::send : OpName::recv;
  if (tensors.size() != 1) {
    throw ctran::Error(
        ctran::ErrorKind::InvalidArgument,
        std::string(toString(name)) + " takes one tensor, got " + std::to_string(tensors.size()));
  }
  const Call call{sends ? c10d::OpType::SEND : c10d::OpType::RECV, name, kNoTimeout, true};
  const std::lock_guard lock(issuing_);
  at::Tensor tensor = sends ? readable(tensors[0]) : tensors[0];
  c10::intrusive_ptr<TorchWork> work;
  if (coalescing_) {
    auto deferred = c10::make_intrusive<DeferredWork>();
    coalescing_->messages.push_back({type, tensor, peer, tag});
    coalescing_->deferred.push_back(deferred);
    work = std::move(deferred);
  } else if (sends) {
    SendOptions options;
    options.tag = tag;
    work = comm_->send(tensor, peer, /*async_op=*/true, options);
  } else {
    RecvOptions options;
    options.tag = tag;
    work = comm_->recv(tensor, peer, /*async_op=*/true, options);
  }
  return wrap(call, 0, {std::move(tensor)}, std::move(work));
}

BackendWrapper::WorkPtr BackendWrapper::send(Tensors& tensors, int dstRank, int tag) {
  return exchange(P2POp::Type::SEND, tensors, dstRank, tag);
}

BackendWrapper::WorkPtr BackendWrapper::recv(Tensors& tensors, int srcRank, int tag) {
  return exchange(P2POp::Type::RECV, tensors, srcRank, tag);
}

BackendWrapper::WorkPtr BackendWrapper::recvAnysource(Tensors& tensors, int tag) {
  const auto refuse = [](const std::string& why) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument, "recv: " + why, {}, "recv");
  };
  if (tensors.size() != 1) refuse("takes one tensor, got " + std::to_string(tensors.size()));
  const Call call{c10d::OpType::RECVANYSOURCE, OpName::recv, kNoTimeout, true};
  RecvOptions options;
  options.tag = tag;
  const std::lock_guard lock(issuing_);
  if (coalescing_) refuse("coalesced receives name their source");
  auto work = comm_->recvAnySource(tensors[0], /*async_op=*/true, options);
  return wrap(call, 0, tensors, std::move(work));
}

uint64_t BackendWrapper::getSequenceNumberForGroup() {
  const std::lock_guard lock(issuing_);
  return sequence_;
}

void BackendWrapper::abort() {
  // Not the lock: a thread that holds it may be what has to be ended.
  if (comm_->isAbortSupported()) comm_->abort();
}

void BackendWrapper::shutdown() {
  const std::lock_guard lock(issuing_);
  if (!comm_->isFinalized()) comm_->finalize();
}

c10d::ErrorType BackendWrapper::getError() {
  return comm_->isAborted() ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

std::shared_ptr<c10::Allocator> BackendWrapper::getMemAllocator() {
  return TorchCommFactory::get().get_allocator(std::string(comm_->getBackend()));
}

void BackendWrapper::registerPool(PoolId pool, const Tensors& segments) {
  const std::lock_guard lock(issuing_);
  for (const at::Tensor& segment : segments) {
    const auto found = pools_.find(pool);
    if (found != pools_.end()) {
      Tensors& known = found->second;
      const auto same = std::find_if(known.begin(), known.end(), [&](const at::Tensor& one) {
        return one.const_data_ptr() == segment.const_data_ptr();
      });
      if (same != known.end()) {
        if (same->nbytes() == segment.nbytes()) continue;
        comm_->tensorDeregister(*same);  // it has grown
        known.erase(same);
      }
    }
    comm_->tensorRegister(segment);
    pools_[pool].push_back(segment);
  }
  pools_[pool];  // registered, even if it has nothing yet
}

void BackendWrapper::deregisterPool(PoolId pool) {
  const std::lock_guard lock(issuing_);
  const auto found = pools_.find(pool);
  if (found == pools_.end()) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument, "This pool is not registered", {},
                       "deregister_mem_pool");
  }
  for (const at::Tensor& segment : found->second) comm_->tensorDeregister(segment);
  pools_.erase(found);
}

#if TORCHCOMMS_TORCH_SINCE(9)

void BackendWrapper::setTimeout(std::chrono::milliseconds timeout) {
  comm_->setTimeout(Call::bounded(timeout));
}

c10::intrusive_ptr<c10d::Backend::Options> BackendWrapper::getBackendOptions() {
  options_->timeout = comm_->getOptions().timeout;
  options_->group_name = comm_->getCommName();
  return options_;
}

c10::intrusive_ptr<c10d::Backend> BackendWrapper::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<Options>& opts) {
  const bool member = std::find(ranks.begin(), ranks.end(), rank_) != ranks.end();
  CommOptions options = comm_->getOptions();
  if (store) options.store = store;
  if (opts && opts->timeout.count() > 0) options.timeout = Call::bounded(opts->timeout);
  const std::lock_guard lock(issuing_);
  if (!member && store && store == leftOutOf_) return nullptr;
  auto child =
      comm_->split(member ? ranks : std::vector<int>{}, opts ? opts->group_name : "", options);
  leftOutOf_ = member ? nullptr : store;
  return child ? c10::make_intrusive<BackendWrapper>(std::move(child)) : nullptr;
}

#endif

#if TORCHCOMMS_TORCH_SINCE(15)

void BackendWrapper::registerCompletionHook(int64_t hookId, c10d::CompletionHook hook) {
  const auto shared = std::make_shared<const c10d::CompletionHook>(std::move(hook));
  const std::lock_guard lock(hooks_->mutex);
  if (!hooks_->hooks.emplace(hookId, shared).second) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "There is a completion hook " + std::to_string(hookId) + " already");
  }
}

void BackendWrapper::unregisterCompletionHook(int64_t hookId) {
  const auto taken = [&] {
    const std::lock_guard lock(hooks_->mutex);
    return hooks_->hooks.extract(hookId);
  }();
}

void BackendWrapper::registerAbortHook(int64_t hookId, c10d::AbortHook hook) {
  const std::lock_guard lock(aborting_);
  if (abortHooks_.count(hookId) != 0) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "There is an abort hook " + std::to_string(hookId) + " already");
  }
  abortHooks_.emplace(hookId, comm_->registerAbortHook(std::move(hook)));
}

void BackendWrapper::unregisterAbortHook(int64_t hookId) {
  const auto taken = [&] {
    const std::lock_guard lock(aborting_);
    return abortHooks_.extract(hookId);
  }();
  // Without the lock: the hook may be of Python, and its end needs the interpreter.
  if (taken) taken.mapped().remove();
}

c10::intrusive_ptr<c10d::Window> BackendWrapper::new_window(
    const std::optional<at::Tensor>& tensor) {
  const std::lock_guard lock(issuing_);
  // The window keeps the backend; what it does after the communicator's end throws.
  auto self = c10::intrusive_ptr<BackendWrapper>::reclaim_copy(this);
  return c10::make_intrusive<WindowWrapper>(
      comm_->new_window(tensor),
      [self](OpName name, std::chrono::milliseconds timeout, bool asyncOp, const auto& operation) {
        const Call call{c10d::OpType::UNKNOWN, name, Call::bounded(timeout), asyncOp};
        c10::intrusive_ptr<TorchWork> work;
        {
          const std::lock_guard issuing(self->issuing_);
          work = operation(call.timeout);
        }
        if (!asyncOp) work->wait();
        return self->wrap(call, 0, {}, std::move(work));
      });
}

c10d::ReconfigureHandle BackendWrapper::get_reconfigure_handle() const {
  return comm_->getInitHandle();
}

c10::intrusive_ptr<c10d::Work> BackendWrapper::reconfigure(const c10d::ReconfigureOptions& opts) {
  ReconfigureOptions options;
  options.uuid = std::to_string(opts.uuid);
  std::visit(
      [&](const auto& handles) {
        options.init_handles = {handles.begin(), handles.end()};
      },
      opts.handles);
  options.ordered = opts.handles.index() == 1;
  options.timeout = Call::bounded(opts.timeout.value_or(kNoTimeout));
  options.hints.insert(opts.hints.begin(), opts.hints.end());
  const std::lock_guard lock(issuing_);
  comm_->reconfigure(options);
  rank_ = comm_->getRank();
  size_ = comm_->getSize();
  sequence_ = 0;
  monitoredBarriers_ = 0;
  members_ = options.uuid;
  const Call call{c10d::OpType::UNKNOWN, OpName::reconfigure, kNoTimeout, false};
  return wrap(call, 0, {}, TorchWorkCompleted::shared());
}

#endif

}  // namespace torch::comms
