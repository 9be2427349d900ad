#include "torchcomms/csrc/backends/ctran/backend.hpp"

#include <algorithm>
#include <comms/torchcomms/TorchCommFactory.hpp>
#include <map>
#include <string>

#include "ctran/base/error.h"
#include "ctran/engine/create.h"
#include "torchcomms/csrc/backends/ctran/describe.hpp"
#include "torchcomms/csrc/backends/ctran/rows.hpp"
#include "torchcomms/csrc/backends/ctran/secret_store.hpp"
#include "torchcomms/csrc/backends/ctran/work.hpp"
#include "torchcomms/csrc/current_stream.hpp"
#include "torchcomms/csrc/held.hpp"

namespace torch::comms {

namespace {

using ctran::Collective;

const BackendRegistration kCtran("ctran", [] { return std::make_shared<CtranBackend>(); },
                                 {.canReconfigure = true});

/// Returns whether to treat tensors of the CPU as a GPU's: for tests, with a stand-in for the
/// driver.
bool usesStandIn(at::Device device, const Hints& hints) {
  const auto hint = hints.find("ctran::stand_in");
  return device.is_cpu() && hint != hints.end() && hint->second == "1" &&
         ctran::gpu::Driver::get().currentHostStream;
}

}  // namespace

CtranBackend::~CtranBackend() {
  if (!members_->comm) return;
  members_->monitor->seen();
  const HostWait wait;
  place_.reset();  // on GPUs, what works lives until its operations have ended
  static_cast<void>(members_.replace({}));
  registered_.clear();
}

void CtranBackend::init(at::Device device, std::string_view name, const CommOptions& options) {
  onGpus_ = device.is_cuda() || usesStandIn(device, options.hints);
  if (!device.is_cpu() && !onGpus_) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       "Backend ctran has no support for device '" + device.str() +
                           "'; it works on tensors of the CPU and of NVIDIA GPUs",
                       {}, {}, "pass torch.device(\"cuda\") or torch.device(\"cpu\")");
  }
  if (onGpus_) place_ = makePlaceOnGpus(*this);
  if (options.enable_reconfigure) {  // its members are not known yet
    CommOptions named = options;
    named.name = std::string(name);
    return adopt(nullptr, device, std::move(named));
  }
  ctran::CommunicatorOptions engine;
  engine.rank = options.rank.value();
  engine.size = options.size.value();
  engine.name = std::string(name);
  engine.timeout = options.timeout;
  engine.hints = {options.hints.begin(), options.hints.end()};
  engine.gpus = onGpus_;
  if (options.store) {
    engine.store = std::make_shared<SecretStore>(options.store);
  } else if (engine.size > 1) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "A communicator of " + std::to_string(engine.size) +
                           " ranks needs a store through which they find each other",
                       {}, {}, "set CommOptions::store, to a TCPStore for instance");
  }
  const HostWait wait;
  EngineWaitHooks hooks;
  auto comm = ctran::Communicator::create(engine, &hooks);
  adopt(std::move(comm), device, options);
}

void CtranBackend::adopt(std::shared_ptr<ctran::Communicator> comm, at::Device device,
                         CommOptions options) {
  if (comm) {
    options.rank = comm->rank();
    options.size = comm->size();
    options.name = comm->name();
  }
  auto monitor = std::make_shared<ErrorMonitor>(
      "rank " + std::to_string(*options.rank) + " of communicator '" + options.name + "' (ctran)",
      options.abort_process_on_timeout_or_error);
  if (comm && onGpus_) {
    device = stream::chooseDevice(device, *options.rank);
    giveGpus(*comm, device, options, monitor);
  }
  options_ = std::move(options);
  device_ = device;
  static_cast<void>(members_.replace({options_.name, std::move(comm), std::move(monitor)}));
}

ctran::Communicator& CtranBackend::Members::engine() const {
  if (!comm) [[unlikely]] {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "Communicator '" + name + "' has no members yet", {}, {},
                       "made with enable_reconfigure=True, it needs a call of reconfigure() first");
  }
  return *comm;
}

std::string CtranBackend::getInitHandle() const {
  if (!options_.enable_reconfigure) return TorchCommBackend::getInitHandle();
  if (!initPoint_) {
    const std::map<std::string, std::string> hints{options_.hints.begin(), options_.hints.end()};
    initPoint_ = std::make_unique<ctran::InitPoint>(ctran::hostOf(hints));
  }
  return initPoint_->handle();
}

void CtranBackend::reconfigure(const ReconfigureOptions& options) {
  getInitHandle();  // there is one from here on
  std::vector<std::string> handles = options.init_handles;
  if (!options.ordered) std::sort(handles.begin(), handles.end());
  CommOptions changed = options_;
  if (!options.hints.empty()) changed.hints = options.hints;
  ctran::CommunicatorOptions engine;
  engine.name = options_.name;
  engine.timeout = options.timeout == kNoTimeout ? options_.timeout : options.timeout;
  engine.hints = {changed.hints.begin(), changed.hints.end()};
  engine.gpus = onGpus_;
  const HostWait wait;
  EngineWaitHooks hooks;
  auto formed = initPoint_->form(handles, options.uuid, engine, &hooks);
  formed->setTimeout(options_.timeout);
  const Members before = *members_;
  adopt(std::move(formed), device_, changed);
  // What is in flight on the communicator so far fails without surprise.
  before.monitor->listen(nullptr);
  before.monitor->seen();
  if (!before.comm) return;
  const bool isIdle = before.comm->idle() && (!onGpus_ || before.comm->onGpus().isIdle());
  if (!isIdle) before.comm->abort("reconfigure() has changed its members");
}

std::shared_ptr<const ctran::CallHints> CtranBackend::hintsOf(const OpOptions& options) const {
  if (options.hints.empty()) return nullptr;
  return engine().hintsOfCall({options.hints.begin(), options.hints.end()});
}

void CtranBackend::setHints(const Hints& hints) {
  engine().setHints({hints.begin(), hints.end()});
  options_.hints = hints;
}

void CtranBackend::finalize() {
  if (!members_->comm) return;
  const HostWait wait;
  EngineWaitHooks hooks;
  std::exception_ptr mismatch;
  visibly(*members_->monitor, [&] {
    try {
      members_->comm->finalize(&hooks);
    } catch (const ctran::Error& error) {
      if (error.kind() != ctran::ErrorKind::Mismatch) throw;
      mismatch = std::current_exception();  // it has left
    }
  });
  registered_.clear();  // its owner may unmap it from now on
  finalized_ = true;
  if (mismatch) std::rethrow_exception(mismatch);
}

TorchCommBackend::WorkPtr CtranBackend::issue(const Call& call) {
  if (call.op == OpName::batch_op_issue) {
    static_cast<void>(hintsOf(call.options));  // refuses what no call knows
    return place_->exchangeMessages(call);
  }
  at::Tensor factor;
  const ctran::ReduceOp op =
      call.reduceOp ? place_->reduceOpOf(*call.reduceOp, factor) : ctran::ReduceOp();
  Collective c = call.rows ? collectiveOf(*call.rows) : collectiveOf(call, getSize(), op);
  if (!call.options.hints.empty()) [[unlikely]]
    c.hints = hintsOf(call.options);
  if (call.rows) return place_->exchangeRows(call, std::move(c));
  if (call.op == OpName::reduce_scatter_quantized) {
    return place_->reduceScatterQuantized(call, std::move(c));
  }
  if (call.op == OpName::recv && call.root == kAnySource) {
    return place_->receiveFromAny(call, std::move(c));
  }
  return place_->execute(call, std::move(c),
                         [&]() -> std::shared_ptr<void> { return held(tensorsOf(call, factor)); });
}

std::shared_ptr<CtranBackend> CtranBackend::part(const std::vector<int>& ranks,
                                                 const std::string& name,
                                                 const CommOptions& options) {
  const HostWait wait;
  EngineWaitHooks hooks(*members_->monitor);
  std::shared_ptr<ctran::Communicator> part = visibly(
      *members_->monitor, [&] { return engine().split(ranks, name, options.timeout, &hooks); });
  if (!part) return nullptr;
  part->setTimeout(options.timeout);
  if (options.hints != options_.hints) {
    part->setHints({options.hints.begin(), options.hints.end()});
  }
  auto child = std::make_shared<CtranBackend>();
  child->onGpus_ = onGpus_;
  if (onGpus_) child->place_ = makePlaceOnGpus(*child);
  child->adopt(std::move(part), device_, options);
  return child;
}

std::shared_ptr<TorchCommWindow> CtranBackend::new_window() {
  engine();
  return place_->newWindow();
}

void CtranBackend::tensorRegister(const at::Tensor& tensor) {
  const HostWait wait;
  registered_[tensor.unsafeGetTensorImpl()] = place_->registerMemory(tensor);
}

void CtranBackend::tensorDeregister(const at::Tensor& tensor) {
  const HostWait wait;
  registered_.erase(tensor.unsafeGetTensorImpl());
}

std::shared_ptr<void> CtranBackend::prepare(OpName op, const at::Tensor& output,
                                            const OpOptions& options) {
  return place_->prepare(op, output, timeoutOf(options));
}

void CtranBackend::abort() { place_->abort(finalized_); }

bool CtranBackend::isAborted() const {
  return members_.look([this](const Members& members) {
    const bool broken = members.comm && members.comm->isAborted();
    if (broken) members.monitor->seen();
    return broken;
  });
}

void CtranBackend::setTimeout(std::chrono::milliseconds timeout) {
  if (members_->comm) members_->comm->setTimeout(timeout);
  options_.timeout = timeout;
}

}  // namespace torch::comms
