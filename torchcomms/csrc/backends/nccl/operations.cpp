// The operations of NcclBackend: what each asks of the library.
//
// What is only moved is moved as bytes, so every dtype can be. Lists of tensors of one size take
// one flat call: in place where they lie one after another, else through a buffer. Lists of tensors
// of several sizes take a group of calls that the library runs as one.

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <unordered_set>

#include "torchcomms/csrc/argument_checks.hpp"
#include "torchcomms/csrc/backends/nccl/backend.hpp"
#include "torchcomms/csrc/backends/nccl/element.hpp"
#include "torchcomms/csrc/backends/stream/operation.hpp"

namespace torch::comms {

namespace {

using nccl::DataType;
using nccl::Element;
using nccl::RedOp;

constexpr DataType kBytes = DataType::Uint8;

const std::byte* readable(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}

std::byte* writable(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

/// Whether the tensors, all of one size, lie one after another.
bool isFlat(const std::vector<at::Tensor>& tensors) {
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (readable(tensors[i]) != readable(tensors[0]) + i * tensors[0].nbytes()) return false;
  }
  return true;
}

/// Consecutive parts of `tensor`, of so many rows each.
std::vector<at::Tensor> rowParts(const at::Tensor& tensor, const std::vector<uint64_t>& rows) {
  const at::Tensor flat = tensor.view({-1});
  const int64_t width = rowSize(tensor);
  std::vector<at::Tensor> parts;
  parts.reserve(rows.size());
  int64_t start = 0;
  for (const uint64_t r : rows) {
    const int64_t count = static_cast<int64_t>(r) * width;
    parts.push_back(flat.narrow(0, start, count));
    start += count;
  }
  return parts;
}

/// The tensors one after another in new memory, by work on the current stream.
at::Tensor joined(const std::vector<at::Tensor>& tensors) {
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  std::vector<at::Tensor> flat;
  flat.reserve(tensors.size());
  for (const at::Tensor& t : tensors) flat.push_back(t.view({-1}));
  return at::cat(flat);
}

at::Tensor copied(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  return tensor.clone();
}

/// By the factor, by work on the current stream.
void scale(const at::Tensor& tensor, const ReduceOp& op) {
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  if (const at::Tensor* factor = std::get_if<at::Tensor>(&op.factor())) {
    tensor.mul_(factor->to(tensor.device(), c10::toRealValueType(tensor.scalar_type()))
                    .reshape(at::IntArrayRef()));
  } else {
    tensor.mul_(op.factorAsDouble());
  }
}

/// The work of an operation that belongs to a graph: it ends whenever the graph has run, so there
/// is nothing to wait for.
using CapturedWork = TorchWorkCompleted;

}  // namespace

void NcclBackend::Call::send(const void* from, size_t bytes, int peer) const {
  check(library.send(from, bytes, kBytes, peer, comm, stream), "ncclSend");
}

void NcclBackend::Call::recv(void* to, size_t bytes, int peer) const {
  check(library.recv(to, bytes, kBytes, peer, comm, stream), "ncclRecv");
}

TorchCommBackend::WorkPtr NcclBackend::run(OpName op, Form form, bool async_op,
                                           const OpOptions& options,
                                           const std::function<void(const Call&)>& calls,
                                           const std::function<void(nccl::Stream)>& after,
                                           const std::function<std::shared_ptr<void>()>& hold) {
  nccl::Group& group = *group_;
  const ctran::gpu::Runtime& runtime = group.runtime();
  group.requireWhole();
  const std::chrono::milliseconds timeout =
      options.timeout == kNoTimeout ? options_.timeout : options.timeout;
  const auto deadline = stream::Clock::now() + timeout;
  const ctran::gpu::ActiveDevice active(runtime, device_.has_index() ? device_.index() : 0);
  const nccl::Stream current = group.currentStream();
  const bool capturing = runtime.isCapturing(current);
  nccl::Stream stream = current;
  if (async_op && !capturing) {
    stream = group.ownStream();
    const ctran::gpu::PooledEvent ready(group.events());
    runtime.check(runtime.eventRecord(ready.get(), current), "recording an event");
    runtime.check(runtime.streamWaitEvent(stream, ready.get(), 0), "making a stream wait");
  }
  group.issue(op, form == Form::Grouped, deadline, [&](nccl::Comm comm) {
    calls(Call{group, group.library(), comm, stream});
  });
  after(stream);
  const uint64_t sequence = group.nextSequence();
  if (capturing) {
    group.keepWithGraph(stream, hold());
    return CapturedWork::shared();
  }
  ctran::gpu::PooledEvent end(group.events());
  runtime.check(runtime.eventRecord(end.get(), stream), "recording an event");
  // Torch's allocator keeps the order of the current stream; of ours nobody else knows.
  const bool isOrdered = !device_.is_cpu();
  auto operation = std::make_shared<stream::Operation>(
      op, group_, sequence, timeout, std::move(end), stream,
      isOrdered ? std::optional(current) : std::nullopt, async_op || !isOrdered ? hold() : nullptr);
  group.watch(stream, operation);
  return c10::make_intrusive<stream::StreamWork>(std::move(operation));
}

template <typename Calls, typename After, typename... Held>
TorchCommBackend::WorkPtr NcclBackend::executeThen(OpName op, Form form, bool async_op,
                                                   const OpOptions& options, const Calls& calls,
                                                   const After& after, const Held&... tensors) {
  const auto hold = [&]() -> std::shared_ptr<void> {
    return std::make_shared<std::tuple<Held...>>(tensors...);
  };
  return run(op, form, async_op, options, std::ref(calls), std::ref(after), std::ref(hold));
}

template <typename Calls, typename... Held>
TorchCommBackend::WorkPtr NcclBackend::execute(OpName op, Form form, bool async_op,
                                               const OpOptions& options, const Calls& calls,
                                               const Held&... tensors) {
  return executeThen(
      op, form, async_op, options, calls, [](nccl::Stream) {}, tensors...);
}

template <typename Calls, typename... Held>
TorchCommBackend::WorkPtr NcclBackend::executeReduction(
    OpName op, Form form, bool async_op, const OpOptions& options, const at::Tensor& example,
    const ReduceOp& reduceOp, const Calls& calls, const Held&... tensors) {
  const Element element = nccl::reducedElement(example, reduceOp, *library_);
  if (reduceOp.type() != RedOpType::PREMUL_SUM) {
    return execute(
        op, form, async_op, options, [&](const Call& call) { calls(call, element, element.op); },
        tensors...);
  }
  if (getSize() == 1 && !device_.is_cpu() && example.element_size() > 1) {
    // NCCL 2.28.9 leaves the last elements of some sizes as they were: we multiply.
    return executeThen(
        op, form, /*async_op=*/false, options,
        [&](const Call& call) { calls(call, element, nccl::kSum); },
        [&](nccl::Stream) { scale(example, reduceOp); }, tensors...);
  }
  nccl::Factor factor = nccl::factorFor(example, reduceOp);
  const bool onDevice = factor.tensor.defined();
  void* scalar = onDevice ? static_cast<void*>(writable(factor.tensor)) : factor.number.data();
  const auto residence =
      onDevice ? nccl::ScalarResidence::Device : nccl::ScalarResidence::HostImmediate;
  return execute(
      op, form, async_op, options,
      [&](const Call& call) {
        RedOp made = 0;
        call.check(
            call.library.redOpCreatePreMulSum(&made, scalar, element.type, residence, call.comm),
            "ncclRedOpCreatePreMulSum");
        try {
          calls(call, element, made);
        } catch (...) {
          call.library.redOpDestroy(made, call.comm);
          throw;
        }
        call.check(call.library.redOpDestroy(made, call.comm), "ncclRedOpDestroy");
      },
      tensors..., factor.tensor);
}

TorchCommBackend::WorkPtr NcclBackend::executePeer(OpName op, bool async_op,
                                                   const OpOptions& options,
                                                   const std::vector<P2POp>& ops) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(ops.size());
  for (const P2POp& one : ops) tensors.push_back(one.tensor);
  return execute(
      op, ops.size() == 1 ? Form::One : Form::Grouped, async_op, options,
      [&](const Call& call) {
        for (const P2POp& one : ops) {
          if (one.type == P2POp::Type::SEND) {
            call.send(readable(one.tensor), one.tensor.nbytes(), one.peer);
          } else {
            call.recv(writable(one.tensor), one.tensor.nbytes(), one.peer);
          }
        }
      },
      tensors);
}

TorchCommBackend::WorkPtr NcclBackend::send(const at::Tensor& tensor, int dst, bool async_op,
                                            const SendOptions& options) {
  if (dst == getRank()) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument, "Cannot send to self", {dst}, "send",
                       "put the send and the recv into one batch");
  }
  return executePeer(OpName::send, async_op, options, {{P2POp::Type::SEND, tensor, dst}});
}

TorchCommBackend::WorkPtr NcclBackend::recv(at::Tensor& tensor, int src, bool async_op,
                                            const RecvOptions& options) {
  if (src == getRank()) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument, "Cannot recv from self", {src}, "recv",
                       "put the send and the recv into one batch");
  }
  return executePeer(OpName::recv, async_op, options, {{P2POp::Type::RECV, tensor, src}});
}

TorchCommBackend::WorkPtr NcclBackend::batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                                                      const BatchP2POptions& options) {
  return executePeer(OpName::batch_op_issue, async_op, options, ops);
}

TorchCommBackend::WorkPtr NcclBackend::broadcast(at::Tensor& tensor, int root, bool async_op,
                                                 const BroadcastOptions& options) {
  return execute(
      OpName::broadcast, Form::One, async_op, options,
      [&](const Call& c) {
        void* data = writable(tensor);
        c.check(c.library.broadcast(data, data, tensor.nbytes(), kBytes, root, c.comm, c.stream),
                "ncclBroadcast");
      },
      tensor);
}

TorchCommBackend::WorkPtr NcclBackend::all_reduce(at::Tensor& tensor, const ReduceOp& op,
                                                  bool async_op, const AllReduceOptions& options) {
  return executeReduction(
      OpName::all_reduce, Form::One, async_op, options, tensor, op,
      [&](const Call& c, const Element& e, RedOp redOp) {
        void* data = writable(tensor);
        c.check(c.library.allReduce(data, data, tensor.numel() * e.perElement, e.type, redOp,
                                    c.comm, c.stream),
                "ncclAllReduce");
      },
      tensor);
}

TorchCommBackend::WorkPtr NcclBackend::reduce(at::Tensor& tensor, int root, const ReduceOp& op,
                                              bool async_op, const ReduceOptions& options) {
  return executeReduction(
      OpName::reduce, Form::One, async_op, options, tensor, op,
      [&](const Call& c, const Element& e, RedOp redOp) {
        void* result = getRank() == root ? writable(tensor) : nullptr;
        c.check(c.library.reduce(readable(tensor), result, tensor.numel() * e.perElement, e.type,
                                 redOp, root, c.comm, c.stream),
                "ncclReduce");
      },
      tensor);
}

TorchCommBackend::WorkPtr NcclBackend::all_gather(const Tensors& tensor_list,
                                                  const at::Tensor& tensor, bool async_op,
                                                  const AllGatherOptions& options) {
  // Where a list lies is known to its rank alone, so all ranks make the same call.
  const bool flat = isFlat(tensor_list);
  const size_t bytes = tensor.nbytes();
  at::Tensor whole = tensor_list[0];
  if (!flat) whole = at::empty({getSize() * tensor.numel()}, tensor.options());
  return executeThen(
      OpName::all_gather, Form::One, async_op, options,
      [&](const Call& c) {
        c.check(
            c.library.allGather(readable(tensor), writable(whole), bytes, kBytes, c.comm, c.stream),
            "ncclAllGather");
      },
      [&](nccl::Stream stream) {
        for (int r = 0; !flat && bytes != 0 && r < getSize(); ++r) {
          group_->copy(writable(tensor_list[r]), readable(whole) + r * bytes, bytes, stream);
        }
      },
      tensor_list, tensor, whole);
}

TorchCommBackend::WorkPtr NcclBackend::all_gather_v(const Tensors& tensor_list,
                                                    const at::Tensor& tensor, bool async_op,
                                                    const AllGatherOptions& options) {
  return execute(
      OpName::all_gather_v, Form::Grouped, async_op, options,
      [&](const Call& c) {
        for (int r = 0; r < getSize(); ++r) {
          const at::Tensor& output = tensor_list[r];
          const at::Tensor& input = r == getRank() ? tensor : output;
          c.check(c.library.broadcast(readable(input), writable(output), output.nbytes(), kBytes, r,
                                      c.comm, c.stream),
                  "ncclBroadcast");
        }
      },
      tensor_list, tensor);
}

TorchCommBackend::WorkPtr NcclBackend::all_gather_single(at::Tensor& output,
                                                         const at::Tensor& input, bool async_op,
                                                         const AllGatherSingleOptions& options) {
  return execute(
      OpName::all_gather_single, Form::One, async_op, options,
      [&](const Call& c) {
        c.check(c.library.allGather(readable(input), writable(output), input.nbytes(), kBytes,
                                    c.comm, c.stream),
                "ncclAllGather");
      },
      output, input);
}

TorchCommBackend::WorkPtr NcclBackend::reduce_scatter(at::Tensor& output, const Tensors& input_list,
                                                      const ReduceOp& op, bool async_op,
                                                      const ReduceScatterOptions& options) {
  const at::Tensor whole = isFlat(input_list) ? input_list[0] : joined(input_list);
  return executeReduction(
      OpName::reduce_scatter, Form::One, async_op, options, output, op,
      [&](const Call& c, const Element& e, RedOp redOp) {
        c.check(
            c.library.reduceScatter(readable(whole), writable(output),
                                    output.numel() * e.perElement, e.type, redOp, c.comm, c.stream),
            "ncclReduceScatter");
      },
      output, input_list, whole);
}

TorchCommBackend::WorkPtr NcclBackend::reduce_scatter_v(at::Tensor& output,
                                                        const Tensors& input_list,
                                                        const ReduceOp& op, bool async_op,
                                                        const ReduceScatterOptions& options) {
  return executeReduction(
      OpName::reduce_scatter_v, Form::Grouped, async_op, options, output, op,
      [&](const Call& c, const Element& e, RedOp redOp) {
        for (int r = 0; r < getSize(); ++r) {
          const at::Tensor& input = input_list[r];
          c.check(
              c.library.reduce(readable(input), r == getRank() ? writable(output) : nullptr,
                               input.numel() * e.perElement, e.type, redOp, r, c.comm, c.stream),
              "ncclReduce");
        }
      },
      output, input_list);
}

TorchCommBackend::WorkPtr NcclBackend::reduce_scatter_single(
    at::Tensor& output, const at::Tensor& input, const ReduceOp& op, bool async_op,
    const ReduceScatterSingleOptions& options) {
  return executeReduction(
      OpName::reduce_scatter_single, Form::One, async_op, options, output, op,
      [&](const Call& c, const Element& e, RedOp redOp) {
        c.check(
            c.library.reduceScatter(readable(input), writable(output),
                                    output.numel() * e.perElement, e.type, redOp, c.comm, c.stream),
            "ncclReduceScatter");
      },
      output, input);
}

TorchCommBackend::WorkPtr NcclBackend::executeExchange(OpName op, bool async_op,
                                                       const OpOptions& options,
                                                       const Tensors& outputs,
                                                       const Tensors& inputs) {
  // The library reads inputs while it writes outputs.
  std::unordered_set<const std::byte*> written;
  for (const at::Tensor& t : outputs) {
    if (t.nbytes() != 0) written.insert(readable(t));
  }
  Tensors sources = inputs;
  for (at::Tensor& t : sources) {
    if (written.count(readable(t)) != 0) t = copied(t);
  }
  return execute(
      op, Form::Grouped, async_op, options,
      [&](const Call& c) {
        for (int r = 0; r < getSize(); ++r) {
          if (sources[r].nbytes() != 0) c.send(readable(sources[r]), sources[r].nbytes(), r);
          if (outputs[r].nbytes() != 0) c.recv(writable(outputs[r]), outputs[r].nbytes(), r);
        }
      },
      outputs, sources);
}

TorchCommBackend::WorkPtr NcclBackend::all_to_all_single(at::Tensor& output,
                                                         const at::Tensor& input, bool async_op,
                                                         const AllToAllSingleOptions& options) {
  const at::Tensor source = readable(input) == readable(output) ? copied(input) : input;
  const size_t bytes = input.nbytes() / getSize();
  return execute(
      OpName::all_to_all_single, library_->alltoAll ? Form::One : Form::Grouped, async_op, options,
      [&](const Call& c) {
        if (c.library.alltoAll) {
          c.check(c.library.alltoAll(readable(source), writable(output), bytes, kBytes, c.comm,
                                     c.stream),
                  "ncclAlltoAll");
          return;
        }
        for (int r = 0; r < getSize(); ++r) {
          c.send(readable(source) + r * bytes, bytes, r);
          c.recv(writable(output) + r * bytes, bytes, r);
        }
      },
      output, source);
}

TorchCommBackend::WorkPtr NcclBackend::all_to_all_v_single(
    at::Tensor& output, const at::Tensor& input, const std::vector<uint64_t>& output_split_sizes,
    const std::vector<uint64_t>& input_split_sizes, bool async_op,
    const AllToAllvSingleOptions& options) {
  const at::Tensor source = readable(input) == readable(output) ? copied(input) : input;
  return executeExchange(OpName::all_to_all_v_single, async_op, options,
                         rowParts(output, output_split_sizes), rowParts(source, input_split_sizes));
}

TorchCommBackend::WorkPtr NcclBackend::all_to_all(const Tensors& output_tensor_list,
                                                  const Tensors& input_tensor_list, bool async_op,
                                                  const AllToAllOptions& options) {
  return executeExchange(OpName::all_to_all, async_op, options, output_tensor_list,
                         input_tensor_list);
}

TorchCommBackend::WorkPtr NcclBackend::barrier(bool async_op, const BarrierOptions& options) {
  return execute(
      OpName::barrier, Form::One, async_op, options,
      [&](const Call& c) {
        void* word = writable(barrierWord_);
        c.check(c.library.allReduce(word, word, 1, DataType::Float32, nccl::kSum, c.comm, c.stream),
                "ncclAllReduce");
      },
      barrierWord_);
}

TorchCommBackend::WorkPtr NcclBackend::scatter(at::Tensor& output_tensor,
                                               const Tensors& input_tensor_list, int root,
                                               bool async_op, const ScatterOptions& options) {
  const size_t bytes = output_tensor.nbytes();
  return execute(
      OpName::scatter, Form::Grouped, async_op, options,
      [&](const Call& c) {
        if (bytes == 0) return;
        const bool inPlace =
            getRank() == root && readable(input_tensor_list[root]) == readable(output_tensor);
        for (int r = 0; getRank() == root && r < getSize(); ++r) {
          if (r != root || !inPlace) c.send(readable(input_tensor_list[r]), bytes, r);
        }
        if (!inPlace) c.recv(writable(output_tensor), bytes, root);
      },
      output_tensor, input_tensor_list);
}

TorchCommBackend::WorkPtr NcclBackend::gather(const Tensors& output_tensor_list,
                                              const at::Tensor& input_tensor, int root,
                                              bool async_op, const GatherOptions& options) {
  const size_t bytes = input_tensor.nbytes();
  return execute(
      OpName::gather, Form::Grouped, async_op, options,
      [&](const Call& c) {
        if (bytes == 0) return;
        const bool inPlace =
            getRank() == root && readable(input_tensor) == readable(output_tensor_list[root]);
        if (!inPlace) c.send(readable(input_tensor), bytes, root);
        for (int r = 0; getRank() == root && r < getSize(); ++r) {
          if (r != root || !inPlace) c.recv(writable(output_tensor_list[r]), bytes, r);
        }
      },
      output_tensor_list, input_tensor);
}

TorchCommBackend::WorkPtr NcclBackend::gather_single(at::Tensor& output, const at::Tensor& input,
                                                     int root, bool async_op,
                                                     const GatherSingleOptions& options) {
  const size_t bytes = input.nbytes();
  return execute(
      OpName::gather_single, Form::Grouped, async_op, options,
      [&](const Call& c) {
        if (bytes == 0) return;
        std::byte* start = getRank() == root ? writable(output) : nullptr;
        const bool inPlace = start && readable(input) == start + root * bytes;
        if (!inPlace) c.send(readable(input), bytes, root);
        for (int r = 0; start && r < getSize(); ++r) {
          if (r != root || !inPlace) c.recv(start + r * bytes, bytes, r);
        }
      },
      output, input);
}

}  // namespace torch::comms
