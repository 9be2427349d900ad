#include <algorithm>

#include <comms/torchcomms/TorchComm.hpp>
#include <numeric>
#include <optional>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "ctran/trace/preparation.h"
#include "torchcomms/csrc/argument_checks.hpp"
#include "torchcomms/csrc/call_recorder.hpp"
#include "torchcomms/csrc/hints.hpp"
#include "torchcomms/csrc/hook_registry.hpp"

namespace torch::comms {

namespace {

/// Names are parts of keys of stores, which have limits of their own.
constexpr size_t kMostNameBytes = 1024;

void checkName(const std::string& name) {
  if (name.size() <= kMostNameBytes) return;
  throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                     "a communicator's name has at most " + std::to_string(kMostNameBytes) +
                         " bytes, and this one " + std::to_string(name.size()));
}

/// For the calls that are no operations.
void requireNotFinalized(const TorchComm& comm, const char* call) {
  if (!comm.isFinalized()) return;
  throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                     "TorchComm '" + std::string(comm.getCommName()) + "' already finalized", {},
                     call);
}

std::vector<int> firstRanks(int count) {
  std::vector<int> ranks(count);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

TorchComm::TorchComm(std::shared_ptr<TorchCommBackend> backend)
    : TorchComm(backend, firstRanks(backend->getSize())) {}

TorchComm::TorchComm(std::shared_ptr<TorchCommBackend> backend, std::vector<int> ranks)
    : impl_(std::move(backend)),
      device_(impl_->getDevice()),
      rank_(impl_->getRank()),
      size_(impl_->getSize()),
      ranks_(std::move(ranks)),
      hooks_(std::make_shared<HookRegistry>()) {
  hooks_->record(CallRecorder::of(*impl_, ranks_));
}

void TorchComm::finalize() {
  begin(OpName::finalize);
  hooks_->before(OpName::finalize, HookRegistry::kNoOpId, FinalizePreHookArgs{});
  finalized_ = true;
  std::exception_ptr mismatch;
  try {
    impl_->finalize();
  } catch (const ctran::Error& error) {
    if (error.kind() != ctran::ErrorKind::Mismatch) throw;
    mismatch = std::current_exception();  // it is finalized all the same
  }
  if (hooks_->recorder() != nullptr) hooks_->recorder()->left();
  hooks_->after(HookRegistry::kNoOpId, FinalizePostHookArgs{});
  hooks_->clear();  // nothing calls them any more, and they may hold this communicator
  if (mismatch) std::rethrow_exception(mismatch);
}

RemovableHandle TorchComm::registerPreHook(PreHook hook) {
  requireNotFinalized(*this, "register_pre_hook");
  return hooks_->addPre(std::move(hook));
}

RemovableHandle TorchComm::registerPostHook(PostHook hook) {
  requireNotFinalized(*this, "register_post_hook");
  return hooks_->addPost(std::move(hook));
}

RemovableHandle TorchComm::registerAbortHook(AbortHook hook) {
  requireNotFinalized(*this, "register_abort_hook");
  RemovableHandle handle = hooks_->addAbort(std::move(hook));
  listenForFailures();
  return handle;
}

void TorchComm::listenForFailures() {
  impl_->setFailureListener([hooks = std::weak_ptr<HookRegistry>(hooks_)](bool processEnds) {
    if (const auto alive = hooks.lock()) alive->broken(processEnds);
  });
}

void TorchComm::abort() {
  if (impl_->isAbortSupported()) hooks_->broken(/*toTheEnd=*/true);
  impl_->abort();
}

std::shared_ptr<TorchComm> TorchComm::split(const std::vector<int>& ranks,
                                            const std::string& name) {
  return split(ranks, name, getOptions());
}

std::shared_ptr<TorchComm> TorchComm::split(const std::vector<int>& ranks, const std::string& name,
                                            const CommOptions& options) {
  begin(OpName::split).members(ranks);
  CommOptions childOptions = options;
  childOptions.rank.reset();
  childOptions.size.reset();
  std::string childName = name;
  if (childName.empty()) childName = std::string(getCommName()) + "/" + std::to_string(splits_);
  checkName(childName);
  childOptions.name = childName;
  const uint64_t id = HookRegistry::nextOpId();
  hooks_->before(OpName::split, id, SplitPreHookArgs{ranks, childName});
  ++splits_;  // on every rank, member of the child or not: names stay agreed
  std::shared_ptr<TorchComm> made;
  if (std::shared_ptr<TorchCommBackend> child = impl_->split(ranks, childName, childOptions)) {
    std::vector<int> members;
    for (const int r : ranks) members.push_back(ranks_[r]);
    made.reset(new TorchComm(std::move(child), std::move(members)));
  }
  hooks_->after(id, SplitPostHookArgs{made});
  return made;
}

std::shared_ptr<TorchComm> TorchComm::dup(const std::string& name) {
  return dup(name, getOptions());
}

std::shared_ptr<TorchComm> TorchComm::dup(const std::string& name, const CommOptions& options) {
  return split(firstRanks(size_), name, options);
}

std::string TorchComm::getInitHandle() const {
  requireNotFinalized(*this, "get_init_handle");
  return impl_->getInitHandle();
}

void TorchComm::reconfigure(const ReconfigureOptions& options) {
  const ArgumentChecks check = begin(OpName::reconfigure);
  check.require(getOptions().enable_reconfigure,
                "reconfigure needs a communicator made with enable_reconfigure=True");
  check.require(!options.init_handles.empty(), "reconfigure needs the handles of the new members");
  const uint64_t id = HookRegistry::nextOpId();
  hooks_->before(OpName::reconfigure, id,
                 ReconfigurePreHookArgs{options.uuid, options.init_handles});
  impl_->reconfigure(options);
  rank_ = impl_->getRank();
  size_ = impl_->getSize();
  ranks_ = firstRanks(size_);
  hooks_->record(CallRecorder::of(*impl_, ranks_, options.uuid));
  hooks_->mended();
  listenForFailures();
  hooks_->after(id, ReconfigurePostHookArgs{rank_, size_});
}

namespace {

/// Where it is now: a window may have moved it since.
auto findRegistered(const std::vector<at::Tensor>& all, const at::Tensor& tensor) {
  return std::find_if(all.begin(), all.end(), [&](const at::Tensor& one) {
    return one.const_data_ptr() == tensor.const_data_ptr();
  });
}

}  // namespace

void TorchComm::tensorRegister(const at::Tensor& tensor) {
  requireNotFinalized(*this, "tensor_register");
  if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_nested() ||
      !tensor.is_contiguous() || tensor.device().type() != device_.type() || !hasMemory(tensor)) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "contiguous tensor required, on " + device_.str(), {}, "tensor_register");
  }
  if (findRegistered(registered_, tensor) != registered_.end()) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument, "Double registration error.", {},
                       "tensor_register", "call tensor_deregister() first");
  }
  const ctran::Preparation preparation;
  impl_->tensorRegister(tensor);
  registered_.push_back(tensor);
}

void TorchComm::tensorDeregister(const at::Tensor& tensor) {
  const bool usable = tensor.defined() && tensor.layout() == at::kStrided && hasMemory(tensor);
  const auto found = usable ? findRegistered(registered_, tensor) : registered_.end();
  if (found == registered_.end()) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument, "This tensor is not registered", {},
                       "tensor_deregister");
  }
  const ctran::Preparation preparation;
  impl_->tensorDeregister(*found);
  registered_.erase(found);
}

std::shared_ptr<c10::Allocator> TorchComm::getMemAllocator() const {
  return TorchCommFactory::get().get_allocator(std::string(getBackend()));
}

std::shared_ptr<TorchCommWindow> TorchComm::new_window(const std::optional<at::Tensor>& tensor) {
  begin(OpName::new_window);
  return makeWindow(tensor.value_or(at::Tensor()), [&](TorchCommWindow& window) {
    if (tensor) window.tensor_register(*tensor);
  });
}

std::shared_ptr<TorchCommWindow> TorchComm::window_allocate(int64_t window_size, bool cpu_buf,
                                                            std::optional<int64_t> signal_size) {
  const ArgumentChecks check = begin(OpName::new_window);
  check.require(!cpu_buf || device_.is_cpu(),
                "window_allocate: memory of the host is only for communicators of the CPU");
  check.require(window_size >= 0, "window_allocate: window_size must not be negative");
  constexpr int64_t kSignals = 64;
  constexpr int64_t kSignalBytes = 8;
  const int64_t signalBytes = signal_size.value_or(kSignals * kSignalBytes);
  check.require(signalBytes >= 0, "window_allocate: signal_size must not be negative");
  if (signalBytes % kSignalBytes != 0) {
    check.fail("window_allocate: signal_size must be a multiple of 8 bytes, one signal, but got " +
               std::to_string(signalBytes));
  }
  return makeWindow({}, [&](TorchCommWindow& window) {
    window.allocate(window_size, signalBytes / kSignalBytes);
  });
}

std::shared_ptr<TorchCommWindow> TorchComm::makeWindow(
    const at::Tensor& tensor, c10::function_ref<void(TorchCommWindow&)> prepare) {
  const uint64_t id = HookRegistry::nextOpId();
  hooks_->before(OpName::new_window, id, NewWindowPreHookArgs{tensor});
  std::shared_ptr<TorchCommWindow> window = impl_->new_window();
  window->hooks_ = hooks_;
  window->backend_ = impl_;
  if (hooks_->recorder() != nullptr) window->number_ = hooks_->recorder()->countWindow();
  prepare(*window);
  hooks_->after(id, NewWindowPostHookArgs{window});
  return window;
}

void TorchComm::setTimeout(std::chrono::milliseconds timeout) {
  requireNotFinalized(*this, "set_timeout");
  if (timeout.count() <= 0) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument, "timeout must be positive");
  }
  impl_->setTimeout(timeout);
}

void TorchComm::setHints(const Hints& hints) {
  requireNotFinalized(*this, "set_hints");
  checkHintsOfCommunicator(hints);
  impl_->setHints(hints);
}

std::shared_ptr<TorchComm> new_comm(const std::string& backend, at::Device device,
                                    const std::string& name, const CommOptions& options) {
  ctran::checkConfig(ctran::kConfigPrefixes);
  CommOptions made = options;
  if (!name.empty()) made.name = name;
  if (made.name.empty()) made.name = "default";
  checkName(made.name);
  if (made.timeout.count() <= 0) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument, "timeout must be positive", {}, {},
                       "see timeout= of the call, or TORCHCOMM_TIMEOUT_SECONDS");
  }
  checkHintsOfCommunicator(made.hints);
  return std::make_shared<TorchComm>(
      TorchCommFactory::get().create_backend(backend, device, made.name, made));
}

}  // namespace torch::comms
