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

std::shared_ptr<const ctran::PersistentCopy> persistentOf(const std::shared_ptr<void>& prepared) {
  return prepared ? static_cast<const Prepared*>(prepared.get())->copy : nullptr;
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

template <typename Call>
auto CtranBackend::visibly(Call call) {
  return torch::comms::visibly(*members_->monitor, std::move(call));
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

std::chrono::milliseconds CtranBackend::timeoutOf(const OpOptions& options) const {
  return options.timeout == kNoTimeout ? options_.timeout : options.timeout;
}

std::shared_ptr<const ctran::CallHints> CtranBackend::hintsOf(const OpOptions& options) const {
  if (options.hints.empty()) return nullptr;
  return engine().hintsOfCall({options.hints.begin(), options.hints.end()});
}

void CtranBackend::setHints(const Hints& hints) {
  engine().setHints({hints.begin(), hints.end()});
  options_.hints = hints;
}

Collective CtranBackend::reduction(CollectiveKind kind, const at::Tensor& tensor, size_t count,
                                   const ReduceOp& op, at::Tensor& factor) const {
  Collective c;
  const at::Tensor* given =
      op.type() == RedOpType::PREMUL_SUM && gpu_ ? std::get_if<at::Tensor>(&op.factor()) : nullptr;
  if (given) {  // stays on the device: nobody waits for it
    const at::AutoDispatchBelowADInplaceOrView belowAutograd;
    factor = given->to(device_, at::kDouble);
    c.op = {ctran::ReduceKind::PremulSum};
    c.op.factorAt = factor.const_data_ptr<double>();
  } else {
    c.op = engineOp(op);
  }
  c.kind = kind;
  c.type = reducedType(tensor, c.op.kind);
  c.count = count;
  return c;
}

template <typename... Held>
TorchCommBackend::WorkPtr CtranBackend::execute(OpName op, Collective&& collective, bool async_op,
                                                const OpOptions& options, const Held&... tensors) {
  if (!options.hints.empty()) [[unlikely]]
    collective.hints = hintsOf(options);
  if (gpu_) {
    const auto hold = [&]() -> std::shared_ptr<void> {
      return std::make_shared<std::tuple<Held...>>(tensors...);
    };
    EngineWaitHooks hooks;
    return workOf(gpu_->enqueue(collective, stream::currentStream(device_),
                                enqueueOptions(op, async_op, options, std::ref(hold)), &hooks));
  }
  if (!async_op) {
    EngineWaitHooks hooks(*members_->monitor);
    visibly([&] { engine().run(collective, options.timeout, &hooks); });
    return TorchWorkCompleted::shared();
  }
  std::shared_ptr<void> held = std::make_shared<std::tuple<Held...>>(tensors...);
  return CtranWork::make(op, visibly([&] {
                           return engine().post(std::move(collective), options.timeout,
                                                std::move(held));
                         }),
                         members_->monitor);
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

TorchCommBackend::WorkPtr CtranBackend::send(const at::Tensor& tensor, int dst, bool async_op,
                                             const SendOptions& options) {
  Collective c = movement(CollectiveKind::Send, tensor, countOf(tensor));
  c.input = readable(tensor);
  c.root = dst;
  c.tag = options.tag;
  return execute(OpName::send, std::move(c), async_op, options, tensor);
}

TorchCommBackend::WorkPtr CtranBackend::recv(at::Tensor& tensor, int src, bool async_op,
                                             const RecvOptions& options) {
  Collective c = movement(CollectiveKind::Recv, tensor, countOf(tensor));
  c.output = writable(tensor);
  c.root = src;
  c.tag = options.tag;
  return execute(OpName::recv, std::move(c), async_op, options, tensor);
}

TorchCommBackend::WorkPtr CtranBackend::recvAnySource(at::Tensor& tensor, bool async_op,
                                                      const RecvOptions& options) {
  if (gpu_) unsupported("recv from any source on a GPU");
  struct Held {
    at::Tensor tensor;
    int source = -1;
  };
  const auto held = std::make_shared<Held>(Held{tensor});
  Collective c = movement(CollectiveKind::Recv, tensor, countOf(tensor));
  c.output = writable(tensor);
  c.root = ctran::kAnyRank;
  c.tag = options.tag;
  c.source = &held->source;
  c.hints = hintsOf(options);
  EngineWaitHooks hooks(*members_->monitor);
  auto work = visibly([&] {
    auto posted = engine().post(std::move(c), options.timeout, held);
    if (!async_op) ctran::Work::finish({&posted, 1}, &hooks);
    return posted;
  });
  return CtranWork::make(OpName::recv, std::move(work), members_->monitor,
                         std::shared_ptr<const int>(held, &held->source));
}

namespace {

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

TorchCommBackend::WorkPtr CtranBackend::issueBatch(const std::vector<P2POp>& ops, bool async_op,
                                                   const BatchP2POptions& options) {
  std::vector<Collective> messages;
  std::vector<at::Tensor> tensors;
  for (const P2POp& op : ops) {
    messages.push_back(messageOf(op));
    tensors.push_back(op.tensor);
  }
  const auto hold = [&]() -> std::shared_ptr<void> {
    return std::make_shared<std::vector<at::Tensor>>(tensors);
  };
  return workOf(gpu_->enqueueMessages(
      messages, stream::currentStream(device_),
      enqueueOptions(OpName::batch_op_issue, async_op, options, std::ref(hold))));
}

TorchCommBackend::WorkPtr CtranBackend::batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                                                       const BatchP2POptions& options) {
  static_cast<void>(hintsOf(options));  // refuses what no call knows
  if (gpu_) return issueBatch(ops, async_op, options);
  std::vector<std::shared_ptr<ctran::Work>> posted;
  posted.reserve(ops.size());
  EngineWaitHooks hooks(*members_->monitor);
  visibly([&] {
    for (const P2POp& op : ops) {
      posted.push_back(
          engine().post(messageOf(op), options.timeout, std::make_shared<at::Tensor>(op.tensor)));
    }
    if (!async_op) ctran::Work::finish(posted, &hooks);
  });
  if (!async_op) return TorchWorkCompleted::shared();
  std::vector<WorkPtr> works;
  for (size_t i = 0; i < ops.size(); ++i) {
    const bool sends = ops[i].type == P2POp::Type::SEND;
    works.push_back(CtranWork::make(sends ? OpName::send : OpName::recv, std::move(posted[i]),
                                    members_->monitor));
  }
  return CombinedWork::of(std::move(works));
}

TorchCommBackend::WorkPtr CtranBackend::broadcast(at::Tensor& tensor, int root, bool async_op,
                                                  const BroadcastOptions& options) {
  Collective c = movement(CollectiveKind::Broadcast, tensor, countOf(tensor));
  c.root = root;
  c.output = writable(tensor);
  return execute(OpName::broadcast, std::move(c), async_op, options, tensor);
}

TorchCommBackend::WorkPtr CtranBackend::all_reduce(at::Tensor& tensor, const ReduceOp& op,
                                                   bool async_op, const AllReduceOptions& options) {
  at::Tensor factor;
  Collective c = reduction(CollectiveKind::AllReduce, tensor, countOf(tensor), op, factor);
  c.output = writable(tensor);
  c.input = c.output;
  return execute(OpName::all_reduce, std::move(c), async_op, options, tensor, factor);
}

TorchCommBackend::WorkPtr CtranBackend::reduce(at::Tensor& tensor, int root, const ReduceOp& op,
                                               bool async_op, const ReduceOptions& options) {
  at::Tensor factor;
  Collective c = reduction(CollectiveKind::Reduce, tensor, countOf(tensor), op, factor);
  c.root = root;
  if (getRank() == root) c.output = writable(tensor);
  c.input = readable(tensor);
  return execute(OpName::reduce, std::move(c), async_op, options, tensor, factor);
}

TorchCommBackend::WorkPtr CtranBackend::all_gather(const Tensors& tensor_list,
                                                   const at::Tensor& tensor, bool async_op,
                                                   const AllGatherOptions& options) {
  Collective c = movement(CollectiveKind::AllGather, tensor, countOf(tensor));
  c.input = readable(tensor);
  c.outputs = writableBlocks(tensor_list);
  return execute(OpName::all_gather, std::move(c), async_op, options, tensor_list, tensor);
}

TorchCommBackend::WorkPtr CtranBackend::all_gather_v(const Tensors& tensor_list,
                                                     const at::Tensor& tensor, bool async_op,
                                                     const AllGatherOptions& options) {
  Collective c = movement(CollectiveKind::AllGatherV, tensor, countOf(tensor));
  c.input = readable(tensor);
  c.outputs = writableBlocks(tensor_list);
  return execute(OpName::all_gather_v, std::move(c), async_op, options, tensor_list, tensor);
}

TorchCommBackend::WorkPtr CtranBackend::all_gather_single(at::Tensor& output,
                                                          const at::Tensor& input, bool async_op,
                                                          const AllGatherSingleOptions& options) {
  Collective c = movement(CollectiveKind::AllGather, input, countOf(input));
  c.input = readable(input);
  c.output = writable(output);
  const auto persistent = persistentOf(options.prepared);
  c.persistent = persistent;
  return execute(OpName::all_gather_single, std::move(c), async_op, options, output, input,
                 persistent);
}

TorchCommBackend::WorkPtr CtranBackend::reduce_scatter(at::Tensor& output,
                                                       const Tensors& input_list,
                                                       const ReduceOp& op, bool async_op,
                                                       const ReduceScatterOptions& options) {
  at::Tensor factor;
  Collective c = reduction(CollectiveKind::ReduceScatter, output, countOf(output), op, factor);
  c.inputs = readableBlocks(input_list);
  c.output = writable(output);
  return execute(OpName::reduce_scatter, std::move(c), async_op, options, output, input_list,
                 factor);
}

TorchCommBackend::WorkPtr CtranBackend::reduce_scatter_v(at::Tensor& output,
                                                         const Tensors& input_list,
                                                         const ReduceOp& op, bool async_op,
                                                         const ReduceScatterOptions& options) {
  at::Tensor factor;
  Collective c = reduction(CollectiveKind::ReduceScatterV, output, countOf(output), op, factor);
  c.inputs = readableBlocks(input_list);
  c.output = writable(output);
  return execute(OpName::reduce_scatter_v, std::move(c), async_op, options, output, input_list,
                 factor);
}

TorchCommBackend::WorkPtr CtranBackend::reduce_scatter_single(
    at::Tensor& output, const at::Tensor& input, const ReduceOp& op, bool async_op,
    const ReduceScatterSingleOptions& options) {
  at::Tensor factor;
  Collective c = reduction(CollectiveKind::ReduceScatter, output, countOf(output), op, factor);
  c.input = readable(input);
  c.output = writable(output);
  return execute(OpName::reduce_scatter_single, std::move(c), async_op, options, output, input,
                 factor);
}

TorchCommBackend::WorkPtr CtranBackend::reduce_scatter_quantized(
    at::Tensor& output, const at::Tensor& input, const ReduceOp& op, const at::Tensor& seed,
    bool async_op, const ReduceScatterSingleOptions& options) {
  if (!gpu_) unsupported("reduce_scatter_quantized on the CPU");
  at::Tensor factor;
  Collective c = reduction(CollectiveKind::ReduceScatter, output, countOf(output), op, factor);
  c.input = readable(input);
  c.output = writable(output);
  ctran::Quantization quantization;
  if (seed.device().type() == device_.type()) {  // read when the kernel runs
    quantization.seedAt = reinterpret_cast<const uint64_t*>(readable(seed));
  } else {
    quantization.seed = static_cast<uint64_t>(seed.item<int64_t>());
  }
  const auto hold = [&]() -> std::shared_ptr<void> {
    return std::make_shared<std::tuple<at::Tensor, at::Tensor, at::Tensor>>(output, input, seed);
  };
  return workOf(gpu_->enqueueQuantized(
      c, quantization, stream::currentStream(device_),
      enqueueOptions(OpName::reduce_scatter_quantized, async_op, options, std::ref(hold))));
}

TorchCommBackend::WorkPtr CtranBackend::all_to_all_single(at::Tensor& output,
                                                          const at::Tensor& input, bool async_op,
                                                          const AllToAllSingleOptions& options) {
  Collective c = movement(CollectiveKind::AllToAll, input, countOf(input) / getSize());
  c.input = readable(input);
  c.output = writable(output);
  const auto persistent = persistentOf(options.prepared);
  c.persistent = persistent;
  return execute(OpName::all_to_all_single, std::move(c), async_op, options, output, input,
                 persistent);
}

TorchCommBackend::WorkPtr CtranBackend::all_to_all_v_single(
    at::Tensor& output, const at::Tensor& input, const std::vector<uint64_t>& output_split_sizes,
    const std::vector<uint64_t>& input_split_sizes, bool async_op,
    const AllToAllvSingleOptions& options) {
  Collective c = movement(CollectiveKind::AllToAllV, input, 0);
  c.inputs = rowBlocks(const_cast<std::byte*>(readable(input)), input, input_split_sizes);
  c.outputs = rowBlocks(writable(output), output, output_split_sizes);
  return execute(OpName::all_to_all_v_single, std::move(c), async_op, options, output, input);
}

TorchCommBackend::WorkPtr CtranBackend::all_to_all(const Tensors& output_tensor_list,
                                                   const Tensors& input_tensor_list, bool async_op,
                                                   const AllToAllOptions& options) {
  Collective c = movement(CollectiveKind::AllToAllV, input_tensor_list[0], 0);
  c.inputs = readableBlocks(input_tensor_list);
  c.outputs = writableBlocks(output_tensor_list);
  return execute(OpName::all_to_all, std::move(c), async_op, options, output_tensor_list,
                 input_tensor_list);
}

TorchCommBackend::WorkPtr CtranBackend::exchange_rows(const RowExchangeCall& call, bool async_op,
                                                      const AllToAllvSingleOptions& options) {
  if (!gpu_ || !(HostRows::areFor(call) || gpu_->spansDomains())) {
    return execute(call.op, collectiveOf(call), async_op, options, call);
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
  HostRows rows(call);
  EngineWaitHooks hooks(*members_->monitor);
  visibly([&] { engine().run(collectiveOf(rows.call()), options.timeout, &hooks); });
  rows.bringBack();
  return TorchWorkCompleted::shared();
}

TorchCommBackend::WorkPtr CtranBackend::barrier(bool async_op, const BarrierOptions& options) {
  return execute(OpName::barrier, Collective{}, async_op, options);
}

TorchCommBackend::WorkPtr CtranBackend::scatter(at::Tensor& output_tensor,
                                                const Tensors& input_tensor_list, int root,
                                                bool async_op, const ScatterOptions& options) {
  Collective c = movement(CollectiveKind::Scatter, output_tensor, countOf(output_tensor));
  c.root = root;
  c.output = writable(output_tensor);
  if (getRank() == root) c.inputs = readableBlocks(input_tensor_list);
  return execute(OpName::scatter, std::move(c), async_op, options, output_tensor,
                 input_tensor_list);
}

TorchCommBackend::WorkPtr CtranBackend::gather(const Tensors& output_tensor_list,
                                               const at::Tensor& input_tensor, int root,
                                               bool async_op, const GatherOptions& options) {
  Collective c = movement(CollectiveKind::Gather, input_tensor, countOf(input_tensor));
  c.root = root;
  c.input = readable(input_tensor);
  if (getRank() == root) c.outputs = writableBlocks(output_tensor_list);
  return execute(OpName::gather, std::move(c), async_op, options, output_tensor_list, input_tensor);
}

TorchCommBackend::WorkPtr CtranBackend::gather_single(at::Tensor& output, const at::Tensor& input,
                                                      int root, bool async_op,
                                                      const GatherSingleOptions& options) {
  Collective c = movement(CollectiveKind::Gather, input, countOf(input));
  c.root = root;
  c.input = readable(input);
  if (getRank() == root) c.output = writable(output);
  return execute(OpName::gather_single, std::move(c), async_op, options, output, input);
}

std::shared_ptr<TorchCommBackend> CtranBackend::split(const std::vector<int>& ranks,
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
  if (gpu_ && gpu_->spansDomains()) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       "GPU tensors of several hosts cannot be windows yet", {}, "new_window",
                       "make windows in communicators of one host each, which split() makes; or of "
                       "tensors of the CPU");
  }
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
  if (!gpu_ || gpu_->spansDomains()) return nullptr;
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
