#include "torchcomms/csrc/backends/ctran/backend.hpp"

#include <comms/torchcomms/TorchCommFactory.hpp>
#include <tuple>

#include "ctran/base/error.h"
#include "torchcomms/csrc/argument_checks.hpp"
#include "torchcomms/csrc/backends/ctran/data_type.hpp"
#include "torchcomms/csrc/backends/ctran/store.hpp"
#include "torchcomms/csrc/backends/ctran/window.hpp"
#include "torchcomms/csrc/backends/ctran/work.hpp"
#include "torchcomms/csrc/combined_work.hpp"

namespace torch::comms {

namespace {

using ctran::Block;
using ctran::Collective;
using ctran::CollectiveKind;

const BackendRegistration kRegistration("ctran", [] { return std::make_shared<CtranBackend>(); });

const std::byte* readable(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}

std::byte* writable(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

size_t countOf(const at::Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }

std::vector<Block> readableBlocks(const std::vector<at::Tensor>& tensors) {
  std::vector<Block> blocks;
  blocks.reserve(tensors.size());
  // A Block serves both directions; blocks of an input are not written.
  for (const at::Tensor& t : tensors) {
    blocks.push_back({const_cast<std::byte*>(readable(t)), countOf(t)});
  }
  return blocks;
}

std::vector<Block> writableBlocks(const std::vector<at::Tensor>& tensors) {
  std::vector<Block> blocks;
  blocks.reserve(tensors.size());
  for (const at::Tensor& t : tensors) blocks.push_back({writable(t), countOf(t)});
  return blocks;
}

/// Consecutive blocks of `rows[r]` rows each.
std::vector<Block> rowBlocks(std::byte* start, const at::Tensor& tensor,
                             const std::vector<uint64_t>& rows) {
  const size_t row = static_cast<size_t>(rowSize(tensor));
  std::vector<Block> blocks;
  blocks.reserve(rows.size());
  for (const uint64_t r : rows) {
    const size_t count = static_cast<size_t>(r) * row;
    blocks.push_back({start, count});
    start += count * tensor.element_size();
  }
  return blocks;
}

Collective movement(CollectiveKind kind, const at::Tensor& tensor, size_t count) {
  Collective c;
  c.kind = kind;
  c.type = movedType(tensor);
  c.count = count;
  return c;
}

Collective reduction(CollectiveKind kind, const at::Tensor& tensor, size_t count,
                     const ReduceOp& op) {
  Collective c;
  c.kind = kind;
  c.op = engineOp(op);
  c.type = reducedType(tensor, c.op.kind);
  c.count = count;
  return c;
}

}  // namespace

CtranBackend::~CtranBackend() {
  if (!comm_) return;
  monitor_->seen();
  const HostWait wait;
  comm_.reset();
}

void CtranBackend::init(at::Device device, std::string_view name, const CommOptions& options) {
  if (!device.is_cpu()) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       "Backend ctran has no support for device '" + device.str() +
                           "' in this build; it works on tensors of the CPU",
                       {}, {}, "pass torch.device(\"cpu\")");
  }
  ctran::CommunicatorOptions engine;
  engine.rank = options.rank.value();
  engine.size = options.size.value();
  engine.name = std::string(name);
  engine.timeout = options.timeout;
  engine.hints = {options.hints.begin(), options.hints.end()};
  if (options.store) {
    engine.store = std::make_shared<C10dStore>(options.store);
  } else if (engine.size > 1) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "A communicator of " + std::to_string(engine.size) +
                           " ranks needs a store through which they find each other",
                       {}, {}, "set CommOptions::store, to a TCPStore for instance");
  }
  const HostWait wait;
  EngineWaitHooks hooks;
  adopt(ctran::Communicator::create(engine, &hooks), device, options);
}

void CtranBackend::adopt(std::shared_ptr<ctran::Communicator> comm, at::Device device,
                         const CommOptions& options) {
  monitor_ = std::make_shared<ErrorMonitor>(
      "rank " + std::to_string(comm->rank()) + " of communicator '" + comm->name() + "' (ctran)",
      options.abort_process_on_timeout_or_error);
  options_ = options;
  options_.rank = comm->rank();
  options_.size = comm->size();
  options_.name = comm->name();
  device_ = device;
  comm_ = std::move(comm);
}

template <typename Call>
auto CtranBackend::visibly(Call call) {
  try {
    return call();
  } catch (const ctran::Error& e) {
    if (e.kind() != ctran::ErrorKind::InvalidArgument) {
      monitor_->seen();
      monitor_->broken();
    }
    throw;
  } catch (...) {  // the host ended the wait: Ctrl-C
    monitor_->seen();
    monitor_->broken();
    throw;
  }
}

template <typename... Held>
TorchCommBackend::WorkPtr CtranBackend::execute(OpName op, Collective&& collective, bool async_op,
                                                const OpOptions& options, const Held&... tensors) {
  if (!async_op) {
    EngineWaitHooks hooks;
    visibly([&] { comm_->run(collective, options.timeout, &hooks); });
    return TorchWorkCompleted::shared();
  }
  std::shared_ptr<void> held = std::make_shared<std::tuple<Held...>>(tensors...);
  return CtranWork::make(
      op,
      visibly([&] { return comm_->post(std::move(collective), options.timeout, std::move(held)); }),
      monitor_);
}

void CtranBackend::finalize() {
  const HostWait wait;
  EngineWaitHooks hooks;
  visibly([&] { comm_->finalize(&hooks); });
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

TorchCommBackend::WorkPtr CtranBackend::batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                                                       const BatchP2POptions& options) {
  std::vector<WorkPtr> works;
  works.reserve(ops.size());
  for (const P2POp& op : ops) {
    const bool sends = op.type == P2POp::Type::SEND;
    Collective c = movement(sends ? CollectiveKind::Send : CollectiveKind::Recv, op.tensor,
                            countOf(op.tensor));
    if (sends) {
      c.input = readable(op.tensor);
    } else {
      c.output = writable(op.tensor);
    }
    c.root = op.peer;
    c.tag = op.tag;
    auto work = visibly([&] {
      return comm_->post(std::move(c), options.timeout, std::make_shared<at::Tensor>(op.tensor));
    });
    works.push_back(
        CtranWork::make(sends ? OpName::send : OpName::recv, std::move(work), monitor_));
  }
  WorkPtr batch = CombinedWork::of(std::move(works));
  if (async_op) return batch;
  batch->wait();
  return TorchWorkCompleted::shared();
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
  Collective c = reduction(CollectiveKind::AllReduce, tensor, countOf(tensor), op);
  c.output = writable(tensor);
  c.input = c.output;
  return execute(OpName::all_reduce, std::move(c), async_op, options, tensor);
}

TorchCommBackend::WorkPtr CtranBackend::reduce(at::Tensor& tensor, int root, const ReduceOp& op,
                                               bool async_op, const ReduceOptions& options) {
  Collective c = reduction(CollectiveKind::Reduce, tensor, countOf(tensor), op);
  c.root = root;
  if (getRank() == root) c.output = writable(tensor);
  c.input = readable(tensor);
  return execute(OpName::reduce, std::move(c), async_op, options, tensor);
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
  return execute(OpName::all_gather_single, std::move(c), async_op, options, output, input);
}

TorchCommBackend::WorkPtr CtranBackend::reduce_scatter(at::Tensor& output,
                                                       const Tensors& input_list,
                                                       const ReduceOp& op, bool async_op,
                                                       const ReduceScatterOptions& options) {
  Collective c = reduction(CollectiveKind::ReduceScatter, output, countOf(output), op);
  c.inputs = readableBlocks(input_list);
  c.output = writable(output);
  return execute(OpName::reduce_scatter, std::move(c), async_op, options, output, input_list);
}

TorchCommBackend::WorkPtr CtranBackend::reduce_scatter_v(at::Tensor& output,
                                                         const Tensors& input_list,
                                                         const ReduceOp& op, bool async_op,
                                                         const ReduceScatterOptions& options) {
  Collective c = reduction(CollectiveKind::ReduceScatterV, output, countOf(output), op);
  c.inputs = readableBlocks(input_list);
  c.output = writable(output);
  return execute(OpName::reduce_scatter_v, std::move(c), async_op, options, output, input_list);
}

TorchCommBackend::WorkPtr CtranBackend::reduce_scatter_single(
    at::Tensor& output, const at::Tensor& input, const ReduceOp& op, bool async_op,
    const ReduceScatterSingleOptions& options) {
  Collective c = reduction(CollectiveKind::ReduceScatter, output, countOf(output), op);
  c.input = readable(input);
  c.output = writable(output);
  return execute(OpName::reduce_scatter_single, std::move(c), async_op, options, output, input);
}

TorchCommBackend::WorkPtr CtranBackend::all_to_all_single(at::Tensor& output,
                                                          const at::Tensor& input, bool async_op,
                                                          const AllToAllSingleOptions& options) {
  Collective c = movement(CollectiveKind::AllToAll, input, countOf(input) / getSize());
  c.input = readable(input);
  c.output = writable(output);
  return execute(OpName::all_to_all_single, std::move(c), async_op, options, output, input);
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
  EngineWaitHooks hooks;
  std::shared_ptr<ctran::Communicator> part =
      visibly([&] { return comm_->split(ranks, name, options.timeout, &hooks); });
  if (!part) return nullptr;
  part->setTimeout(options.timeout);
  auto child = std::make_shared<CtranBackend>();
  child->adopt(std::move(part), device_, options);
  return child;
}

std::shared_ptr<TorchCommWindow> CtranBackend::new_window() {
  return std::make_shared<CtranWindow>(comm_, monitor_, device_);
}

void CtranBackend::abort() {
  monitor_->seen();
  comm_->abort("abort() was called on rank " + std::to_string(getRank()));
}

bool CtranBackend::isAborted() const {
  const bool broken = comm_->isAborted();
  if (broken) monitor_->seen();
  return broken;
}

void CtranBackend::setTimeout(std::chrono::milliseconds timeout) {
  comm_->setTimeout(timeout);
  options_.timeout = timeout;
}

}  // namespace torch::comms
