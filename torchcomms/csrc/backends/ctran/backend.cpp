#include "torchcomms/csrc/backends/ctran/backend.hpp"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <comms/torchcomms/TorchCommFactory.hpp>
#include <map>
#include <string>
#include <tuple>

#include "ctran/base/error.h"
#include "ctran/engine/create.h"
#include "ctran/engine/gpu_domain.h"
#include "ctran/memory/device_segment.h"
#include "torchcomms/csrc/backends/ctran/blocks.hpp"
#include "torchcomms/csrc/backends/ctran/data_type.hpp"
#include "torchcomms/csrc/backends/ctran/gpu_window.hpp"
#include "torchcomms/csrc/backends/ctran/rows.hpp"
#include "torchcomms/csrc/backends/ctran/secret_store.hpp"
#include "torchcomms/csrc/backends/ctran/window.hpp"
#include "torchcomms/csrc/backends/ctran/work.hpp"
#include "torchcomms/csrc/backends/nccl/hints.hpp"
#include "torchcomms/csrc/backends/stream/current_stream.hpp"
#include "torchcomms/csrc/backends/stream/work.hpp"
#include "torchcomms/csrc/combined_work.hpp"

namespace torch::comms {

namespace {

using ctran::Collective;
using ctran::CollectiveKind;

const BackendRegistration kRegistration("ctran", [] { return std::make_shared<CtranBackend>(); },
                                        {.canReconfigure = true});

/// Whether to treat tensors of the CPU as a GPU's: for tests, with a stand-in for the driver.
bool usesStandIn(at::Device device, const Hints& hints) {
  const auto hint = hints.find("ctran::stand_in");
  return device.is_cpu() && hint != hints.end() && hint->second == "1" &&
         ctran::gpu::Driver::get().currentHostStream;
}

void refuseUnknown(const Hints& hints) {
  constexpr std::string_view kKnown[] = {"algorithm", "deterministic", "host", "stand_in",
                                         "through_host"};
  for (const auto& [key, value] : hints) {
    if (!key.starts_with("ctran::")) continue;
    const std::string_view name = std::string_view(key).substr(7);
    if (std::find(std::begin(kKnown), std::end(kKnown), name) != std::end(kKnown)) continue;
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "backend ctran knows no hint " + key +
                           "; there are ctran::algorithm, ctran::deterministic and ctran::host");
  }
}

/// Whether a communicator of GPUs may go through the host's memory; not if something else is there.
ctran::GpuFallback fallbackOf(const Hints& hints) {
  using Fallback = ctran::GpuFallback;
  const auto hint = hints.find("ctran::through_host");
  return hint != hints.end() && hint->second == "0" ? Fallback::None : Fallback::HostMemory;
}

/// Of a handle. Works and graphs have the copy alone.
struct Prepared {
  explicit Prepared(std::shared_ptr<const ctran::PersistentCopy> c) : copy(std::move(c)) {}
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  ~Prepared() { copy->free(); }

  const std::shared_ptr<const ctran::PersistentCopy> copy;
};

std::shared_ptr<const ctran::PersistentCopy> persistentOf(const std::shared_ptr<void>* prepared) {
  return prepared ? static_cast<const Prepared*>(prepared->get())->copy : nullptr;
}

/// Which collective an operation is, and how it sees the tensors.
struct Description {
  CollectiveKind kind = CollectiveKind::Barrier;
  bool ofOutput = false;  ///< the output says how many elements of which type, else the input
  bool inputBlocks = false;
  bool outputBlocks = false;
};

constexpr Description descriptionOf(OpName op) {
  using Kind = CollectiveKind;
  switch (op) {
    case OpName::send:
      return {Kind::Send};
    case OpName::recv:
      return {Kind::Recv, true};
    case OpName::broadcast:
      return {Kind::Broadcast, true};
    case OpName::all_reduce:
      return {Kind::AllReduce};
    case OpName::reduce:
      return {Kind::Reduce};
    case OpName::all_gather:
      return {.kind = Kind::AllGather, .outputBlocks = true};
    case OpName::all_gather_v:
      return {.kind = Kind::AllGatherV, .outputBlocks = true};
    case OpName::all_gather_single:
      return {Kind::AllGather};
    case OpName::reduce_scatter:
      return {.kind = Kind::ReduceScatter, .ofOutput = true, .inputBlocks = true};
    case OpName::reduce_scatter_v:
      return {.kind = Kind::ReduceScatterV, .ofOutput = true, .inputBlocks = true};
    case OpName::reduce_scatter_single:
    case OpName::reduce_scatter_quantized:
      return {Kind::ReduceScatter, true};
    case OpName::all_to_all_single:
      return {Kind::AllToAll};
    case OpName::all_to_all_v_single:
    case OpName::all_to_all:
      return {.kind = Kind::AllToAllV, .inputBlocks = true, .outputBlocks = true};
    case OpName::scatter:
      return {.kind = Kind::Scatter, .ofOutput = true, .inputBlocks = true};
    case OpName::gather:
      return {.kind = Kind::Gather, .outputBlocks = true};
    case OpName::gather_single:
      return {Kind::Gather};
    default:
      return {};
  }
}

/// What owns the memory of a call until it is done.
struct Held {
  c10::SmallVector<at::Tensor, 3> tensors;
  std::shared_ptr<const ctran::PersistentCopy> persistent;

  Held(const Call& call, const at::Tensor& factor, const Collective& collective)
      : persistent(collective.persistent) {
    tensors.append(call.inputs.begin(), call.inputs.end());
    if (call.outputs.data() != call.inputs.data()) {
      tensors.append(call.outputs.begin(), call.outputs.end());
    }
    if (factor.defined()) tensors.push_back(factor);
  }
};

Collective messageOf(const P2POp& op) {
  const bool sends = op.type == P2POp::Type::SEND;
  Collective c =
      movement(sends ? CollectiveKind::Send : CollectiveKind::Recv, op.tensor, countOf(op.tensor));
  if (sends) {
    c.input = readable(op.tensor);
  } else {
    c.output = writable(op.tensor);
  }
  c.root = op.peer;
  c.tag = op.tag;
  return c;
}

}  // namespace

CtranBackend::~CtranBackend() {
  if (!members_->comm) return;
  members_->monitor->seen();
  const HostWait wait;
  gpu_.reset();  // lives until its operations have ended
  static_cast<void>(members_.replace({}));
  adopted_.clear();
  direct_.clear();
}

void CtranBackend::init(at::Device device, std::string_view name, const CommOptions& options) {
  refuseUnknown(options.hints);
  const bool onGpu = device.is_cuda() || usesStandIn(device, options.hints);
  if (!device.is_cpu() && !onGpu) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       "Backend ctran has no support for device '" + device.str() +
                           "'; it works on tensors of the CPU and of NVIDIA GPUs",
                       {}, {}, "pass torch.device(\"cuda\") or torch.device(\"cpu\")");
  }
  if (onGpu && options.enable_reconfigure) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       "Communicators of GPUs cannot be reconfigured yet", {}, {},
                       "make a new one of those that are left");
  }
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
  engine.gpus = onGpu;
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
  adopt(std::move(comm), stream::chooseDevice(device, engine.rank), options);
  if (onGpu) enterGpu(hooks);
}

void CtranBackend::adopt(std::shared_ptr<ctran::Communicator> comm, at::Device device,
                         CommOptions options) {
  if (comm) {
    options.rank = comm->rank();
    options.size = comm->size();
    options.name = comm->name();
  }
  options_ = std::move(options);
  device_ = device;
  auto monitor = std::make_shared<ErrorMonitor>(
      "rank " + std::to_string(*options_.rank) + " of communicator '" + options_.name + "' (ctran)",
      options_.abort_process_on_timeout_or_error);
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
  const HostWait wait;
  EngineWaitHooks hooks;
  auto formed = initPoint_->form(handles, options.uuid, engine, &hooks);
  formed->setTimeout(options_.timeout);
  // What is in flight on the communicator so far fails without surprise.
  members_->monitor->listen(nullptr);
  members_->monitor->seen();
  adopt(std::move(formed), device_, changed);
}

template <typename Ask>
auto CtranBackend::visibly(Ask ask) {
  return torch::comms::visibly(*members_->monitor, std::move(ask));
}

void CtranBackend::enterGpu(ctran::WaitHooks& hooks) {
  const ctran::GpuCommunicatorOptions options{
      .device = device_.has_index() ? device_.index() : 0,
      .fallback = fallbackOf(options_.hints),
      .highPriority = options_.is_high_priority_stream || nccl::wantsHighPriority(options_.hints),
      .freesInStreamOrder = !device_.is_cpu(),
      .observer = members_->monitor};
  gpu_ = visibly([&] { return ctran::GpuCommunicator::create(members_->comm, options, &hooks); });
}

ctran::EnqueueOptions CtranBackend::enqueueOptions(
    OpName op, bool async_op, const OpOptions& options,
    std::function<std::shared_ptr<void>()> hold) const {
  return {.name = toString(op),
          .timeout = timeoutOf(options),
          .aside = async_op,
          .keepAlive = std::move(hold)};
}

TorchCommBackend::WorkPtr CtranBackend::workOf(
    std::shared_ptr<ctran::StreamOperation> operation) const {
  return stream::workOf(std::move(operation), device_);
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
  if (gpu_) {
    EngineWaitHooks hooks;
    gpu_->drain(&hooks);
    gpu_->throwIfBroken();
  }
  const HostWait wait;
  EngineWaitHooks hooks;
  visibly([&] { members_->comm->finalize(&hooks); });
  adopted_.clear();  // its owner may unmap it from now on
  direct_.clear();
  finalized_ = true;
}

TorchCommBackend::WorkPtr CtranBackend::issue(const Call& call) {
  if (call.rows) return exchangeRows(call);
  if (call.op == OpName::batch_op_issue) return exchangeMessages(call);
  if (call.op == OpName::recv && call.root == kAnySource) return receiveFromAny(call);
  if (call.op == OpName::reduce_scatter_quantized) return reduceScatterQuantized(call);
  at::Tensor factor;
  Collective collective = describe(call, factor);
  return execute(call, std::move(collective), [&](const Collective& c) -> std::shared_ptr<void> {
    return std::make_shared<Held>(call, factor, c);
  });
}

Collective CtranBackend::describe(const Call& call, at::Tensor& factor) const {
  const Description description = descriptionOf(call.op);
  Collective c;
  c.kind = description.kind;
  if (c.kind == CollectiveKind::Barrier) return c;
  c.root = call.root;
  c.tag = call.tag;
  const at::Tensor& example = description.ofOutput ? call.outputs[0] : call.inputs[0];
  if (call.reduceOp) {
    c.op = reduceOpOf(*call.reduceOp, factor);
    c.type = reducedType(example, c.op.kind);
  } else {
    c.type = movedType(example);
  }
  if (c.kind != CollectiveKind::AllToAllV) c.count = countOf(example);
  if (c.kind == CollectiveKind::AllToAll) c.count /= getSize();
  if (call.prepared) c.persistent = persistentOf(call.prepared);
  // Outputs first: to write a tensor may give it memory of its own, which is then read, too.
  if (!call.outputRows.empty()) {
    c.outputs = rowBlocks(writable(call.outputs[0]), call.outputs[0], call.outputRows);
    c.inputs =
        rowBlocks(const_cast<std::byte*>(readable(call.inputs[0])), call.inputs[0], call.inputRows);
    return c;
  }
  if (description.outputBlocks) {
    c.outputs = writableBlocks(call.outputs);
  } else if (!call.outputs.empty()) {
    c.output = writable(call.outputs[0]);
  }
  if (description.inputBlocks) {
    c.inputs = readableBlocks(call.inputs);
  } else if (!call.inputs.empty()) {
    c.input = readable(call.inputs[0]);
  }
  return c;
}

ctran::ReduceOp CtranBackend::reduceOpOf(const ReduceOp& op, at::Tensor& factor) const {
  const at::Tensor* given =
      op.type() == RedOpType::PREMUL_SUM && gpu_ ? std::get_if<at::Tensor>(&op.factor()) : nullptr;
  if (!given) return engineOp(op);
  // It stays on the device: nobody waits for it.
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  factor = given->to(device_, at::kDouble);
  ctran::ReduceOp made{ctran::ReduceKind::PremulSum};
  made.factorAt = factor.const_data_ptr<double>();
  return made;
}

template <typename Hold>
TorchCommBackend::WorkPtr CtranBackend::execute(const Call& call, Collective&& collective,
                                                const Hold& hold) {
  if (!call.options.hints.empty()) [[unlikely]]
    collective.hints = hintsOf(call.options);
  if (gpu_) {
    EngineWaitHooks hooks;
    const auto keep = [&] { return hold(collective); };
    return workOf(gpu_->enqueue(collective, stream::currentStream(device_),
                                enqueueOptions(call.op, call.async, call.options, std::ref(keep)),
                                &hooks));
  }
  if (!call.async) {
    EngineWaitHooks hooks(*members_->monitor);
    visibly([&] { engine().run(collective, call.options.timeout, &hooks); });
    return TorchWorkCompleted::shared();
  }
  std::shared_ptr<void> held = hold(collective);
  return CtranWork::make(call.op, visibly([&] {
                           return engine().post(std::move(collective), call.options.timeout,
                                                std::move(held));
                         }),
                         members_->monitor);
}

TorchCommBackend::WorkPtr CtranBackend::receiveFromAny(const Call& call) {
  if (gpu_) unsupported("recv from any source on a GPU");
  struct Received {
    at::Tensor tensor;
    int source = -1;
  };
  const auto held = std::make_shared<Received>(Received{call.outputs[0]});
  at::Tensor noFactor;
  Collective c = describe(call, noFactor);
  c.root = ctran::kAnyRank;
  c.source = &held->source;
  c.hints = hintsOf(call.options);
  EngineWaitHooks hooks(*members_->monitor);
  auto work = visibly([&] {
    auto posted = engine().post(std::move(c), call.options.timeout, held);
    if (!call.async) ctran::Work::finish({&posted, 1}, &hooks);
    return posted;
  });
  return CtranWork::make(OpName::recv, std::move(work), members_->monitor,
                         std::shared_ptr<const int>(held, &held->source));
}

TorchCommBackend::WorkPtr CtranBackend::enqueueMessages(const Call& call) {
  std::vector<Collective> messages;
  std::vector<at::Tensor> tensors;
  for (const P2POp& op : call.batch) {
    messages.push_back(messageOf(op));
    tensors.push_back(op.tensor);
  }
  const auto hold = [&]() -> std::shared_ptr<void> {
    return std::make_shared<std::vector<at::Tensor>>(tensors);
  };
  return workOf(
      gpu_->enqueueMessages(messages, stream::currentStream(device_),
                            enqueueOptions(call.op, call.async, call.options, std::ref(hold))));
}

TorchCommBackend::WorkPtr CtranBackend::exchangeMessages(const Call& call) {
  static_cast<void>(hintsOf(call.options));  // refuses what no call knows
  if (gpu_) return enqueueMessages(call);
  std::vector<std::shared_ptr<ctran::Work>> posted;
  posted.reserve(call.batch.size());
  EngineWaitHooks hooks(*members_->monitor);
  visibly([&] {
    for (const P2POp& op : call.batch) {
      posted.push_back(engine().post(messageOf(op), call.options.timeout,
                                     std::make_shared<at::Tensor>(op.tensor)));
    }
    if (!call.async) ctran::Work::finish(posted, &hooks);
  });
  if (!call.async) return TorchWorkCompleted::shared();
  std::vector<WorkPtr> works;
  for (size_t i = 0; i < posted.size(); ++i) {
    const bool sends = call.batch[i].type == P2POp::Type::SEND;
    works.push_back(CtranWork::make(sends ? OpName::send : OpName::recv, std::move(posted[i]),
                                    members_->monitor));
  }
  return CombinedWork::of(std::move(works));
}

TorchCommBackend::WorkPtr CtranBackend::reduceScatterQuantized(const Call& call) {
  if (!gpu_) unsupported("reduce_scatter_quantized on the CPU");
  at::Tensor factor;
  const Collective c = describe(call, factor);
  const at::Tensor& seed = *call.seed;
  ctran::Quantization quantization;
  if (seed.device().type() == device_.type()) {  // read when the kernel runs
    quantization.seedAt = reinterpret_cast<const uint64_t*>(readable(seed));
  } else {
    quantization.seed = static_cast<uint64_t>(seed.item<int64_t>());
  }
  const auto hold = [&]() -> std::shared_ptr<void> {
    return std::make_shared<Held>(call, seed, c);
  };
  return workOf(
      gpu_->enqueueQuantized(c, quantization, stream::currentStream(device_),
                             enqueueOptions(call.op, call.async, call.options, std::ref(hold))));
}

TorchCommBackend::WorkPtr CtranBackend::exchangeRows(const Call& call) {
  if (!gpu_ || !HostRows::areFor(*call.rows)) {
    return execute(call, collectiveOf(*call.rows), [&](const Collective&) -> std::shared_ptr<void> {
      return std::make_shared<RowExchangeCall>(*call.rows);
    });
  }
  gpu_->throwIfBroken();
  if (gpu_->runtime().isCapturing(stream::currentStream(device_))) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       std::string(toString(call.op)) +
                           " of tensors of a GPU goes through the host's memory and cannot be "
                           "captured",
                       {}, {}, "put the rows in the order of the ranks, for all_to_all_v_dynamic");
  }
  EngineWaitHooks waitHooks;
  gpu_->drain(&waitHooks);  // an operation issued before it may write the numbers
  gpu_->throwIfBroken();
  HostRows rows(*call.rows);
  EngineWaitHooks hooks(*members_->monitor);
  visibly([&] { engine().run(collectiveOf(rows.call()), call.options.timeout, &hooks); });
  rows.bringBack();
  return TorchWorkCompleted::shared();
}

std::shared_ptr<CtranBackend> CtranBackend::part(const std::vector<int>& ranks,
                                                 const std::string& name,
                                                 const CommOptions& options) {
  const HostWait wait;
  EngineWaitHooks hooks(*members_->monitor);
  std::shared_ptr<ctran::Communicator> part =
      visibly([&] { return engine().split(ranks, name, options.timeout, &hooks); });
  if (!part) return nullptr;
  part->setTimeout(options.timeout);
  if (options.hints != options_.hints) {
    part->setHints({options.hints.begin(), options.hints.end()});
  }
  auto child = std::make_shared<CtranBackend>();
  child->adopt(std::move(part), device_, options);
  if (gpu_) child->enterGpu(hooks);
  return child;
}

std::shared_ptr<TorchCommWindow> CtranBackend::new_window() {
  engine();
  if (gpu_) return makeGpuWindow(*this);
  return std::make_shared<CtranWindow>(members_->comm, members_->monitor, device_);
}

void CtranBackend::tensorRegister(const at::Tensor& tensor) {
  const HostWait wait;
  const void* address = tensor.const_data_ptr();
  if (!gpu_) {
    // resize_() and set_() take the memory away from a tensor.
    const auto kept = std::make_shared<at::Tensor>(tensor.detach());
    auto* const data = static_cast<std::byte*>(const_cast<void*>(address));
    const auto isCurrent = [weak = std::weak_ptr(kept), data] {
      const auto held = weak.lock();
      return held && held->const_data_ptr() == data;
    };
    direct_[address] = {kept, engine().useDirectly({data, tensor.nbytes()}, isCurrent)};
    return;
  }
  const int device = device_.has_index() ? device_.index() : 0;
  adopted_[address] = ctran::DeviceSegment::adopt(device, address, tensor.nbytes());
  gpu_->domain().registerMemory(address, tensor.nbytes());
}

void CtranBackend::tensorDeregister(const at::Tensor& tensor) {
  const HostWait wait;
  adopted_.erase(tensor.const_data_ptr());
  direct_.erase(tensor.const_data_ptr());
}

std::shared_ptr<void> CtranBackend::prepare(OpName op, const at::Tensor& output,
                                            const OpOptions& options) {
  if (!gpu_) return nullptr;
  gpu_->throwIfBroken();
  const ctran::gpu::ActiveDevice active(gpu_->runtime(), gpu_->device());
  const HostWait wait;
  EngineWaitHooks hooks(*members_->monitor);
  const auto kind =
      op == OpName::all_gather_single ? CollectiveKind::AllGather : CollectiveKind::AllToAll;
  auto made = visibly([&] {
    return gpu_->domain().prepare(kind, writable(output), output.nbytes(), timeoutOf(options),
                                  &hooks);
  });
  return made ? std::make_shared<Prepared>(std::move(made)) : nullptr;
}

void CtranBackend::abort() {
  if (gpu_) {
    members_->monitor->seen();
    if (finalized_ && !gpu_->hasGraphs()) return;  // the others go on without this rank
    return gpu_->abort();
  }
  members_.look([](const Members& members) {
    members.monitor->seen();
    ctran::Communicator& engine = members.engine();
    engine.abort("abort() was called on rank " + std::to_string(engine.rank()));
  });
}

bool CtranBackend::isAborted() const {
  return members_.look([this](const Members& members) {
    const bool broken = (members.comm && members.comm->isAborted()) || (gpu_ && gpu_->isBroken());
    if (broken) members.monitor->seen();
    return broken;
  });
}

void CtranBackend::setTimeout(std::chrono::milliseconds timeout) {
  if (gpu_) {
    gpu_->setTimeout(timeout);
  } else if (members_->comm) {
    members_->comm->setTimeout(timeout);
  }
  options_.timeout = timeout;
}

}  // namespace torch::comms
