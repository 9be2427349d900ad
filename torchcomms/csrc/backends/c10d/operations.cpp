// The operations of C10dBackend: what each asks of the c10d backend.

#include <ATen/ATen.h>

#include <algorithm>

#include "torchcomms/csrc/argument_checks.hpp"
#include "torchcomms/csrc/backends/c10d/backend.hpp"
#include "torchcomms/csrc/backends/c10d/group.hpp"
#include "torchcomms/csrc/backends/c10d/reduction.hpp"

namespace torch::comms {

namespace {

using Tensors = std::vector<at::Tensor>;

std::vector<int64_t> lengthsOf(const Tensors& tensors) {
  std::vector<int64_t> lengths;
  lengths.reserve(tensors.size());
  for (const at::Tensor& t : tensors) lengths.push_back(t.numel());
  return lengths;
}

bool sameMemory(const at::Tensor& a, const at::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr();
}

int64_t sum(const std::vector<int64_t>& lengths) {
  int64_t total = 0;
  for (const int64_t length : lengths) total += length;
  return total;
}

void allToAll(const C10dCall& call, at::Tensor output, at::Tensor input,
              std::vector<int64_t> outputLengths, std::vector<int64_t> inputLengths) {
  call.run([&](c10d::Backend& backend) {
    return backend.alltoall_base(output, input, outputLengths, inputLengths,
                                 call.options<c10d::AllToAllOptions>());
  });
}

/// All ranks' `values` in one tensor, a row per rank.
at::Tensor gatherRows(const C10dCall& call, const at::Tensor& values) {
  const at::Tensor rows = at::empty({call.size(), values.numel()}, values.options());
  at::Tensor output = bytesOf(rows);
  at::Tensor input = bytesOf(values);
  call.run([&](c10d::Backend& backend) {
    return backend._allgather_base(output, input, call.options<c10d::AllgatherOptions>());
  });
  return rows;
}

/// Sends `parts[r]`, encoded, to rank r, and reduces what comes. Every rank's part for this one has
/// the size of `output`. (n - 1) / n of the input leaves each rank, as in the best algorithms.
void reduceScatter(const C10dCall& call, const Reduction& reduction, const at::Tensor& output,
                   const Tensors& parts) {
  Tensors encoded;
  std::vector<int64_t> inputLengths;
  for (const at::Tensor& part : parts) {
    encoded.push_back(reduction.encode(part));
    inputLengths.push_back(static_cast<int64_t>(encoded.back().nbytes()));
  }
  const at::Tensor input = at::cat(encoded);
  const int64_t count = encoded[call.rank()].numel();
  const at::Tensor rows = at::empty({call.size(), count}, input.options());
  const std::vector<int64_t> outputLengths(call.size(), inputLengths[call.rank()]);
  allToAll(call, bytesOf(rows), bytesOf(input), outputLengths, inputLengths);
  reduction.decode(reduction.reduceBlocks(rows), output);
}

}  // namespace

TorchCommBackend::WorkPtr C10dBackend::send(const at::Tensor& tensor, int dst, bool async_op,
                                            const SendOptions& options) {
  return exchange(OpName::send, {{P2POp::Type::SEND, tensor, dst, options.tag}}, async_op, options);
}

TorchCommBackend::WorkPtr C10dBackend::recv(at::Tensor& tensor, int src, bool async_op,
                                            const RecvOptions& options) {
  return exchange(OpName::recv, {{P2POp::Type::RECV, tensor, src, options.tag}}, async_op, options);
}

TorchCommBackend::WorkPtr C10dBackend::batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                                                      const BatchP2POptions& options) {
  return exchange(OpName::batch_op_issue, ops, async_op, options);
}

TorchCommBackend::WorkPtr C10dBackend::broadcast(at::Tensor& tensor, int root, bool async_op,
                                                 const BroadcastOptions& options) {
  return execute(OpName::broadcast, async_op, options, [tensor, root](const C10dCall& call) {
    Tensors bytes{bytesOf(tensor)};
    auto asked = call.options<c10d::BroadcastOptions>();
    asked.rootRank = root;
    call.run([&](c10d::Backend& backend) { return backend.broadcast(bytes, asked); });
  });
}

TorchCommBackend::WorkPtr C10dBackend::all_reduce(at::Tensor& tensor, const ReduceOp& op,
                                                  bool async_op, const AllReduceOptions& options) {
  const Reduction reduction = reductionOf(tensor, op);
  return execute(OpName::all_reduce, async_op, options, [tensor, reduction](const C10dCall& call) {
    Tensors values{reduction.encode(tensor)};
    if (!reduction.isCarried()) {
      reduction.decode(reduction.reduceBlocks(gatherRows(call, values[0])), tensor);
      return;
    }
    auto asked = call.options<c10d::AllreduceOptions>();
    asked.reduceOp = reduction.op();
    call.run([&](c10d::Backend& backend) { return backend.allreduce(values, asked); });
    reduction.decode(values[0], tensor);
  });
}

TorchCommBackend::WorkPtr C10dBackend::reduce(at::Tensor& tensor, int root, const ReduceOp& op,
                                              bool async_op, const ReduceOptions& options) {
  const Reduction reduction = reductionOf(tensor, op);
  return execute(OpName::reduce, async_op, options, [=](const C10dCall& call) {
    const bool isRoot = call.rank() == root;
    at::Tensor values = reduction.encode(tensor);
    if (!reduction.isCarried()) {
      const at::Tensor rows = gatherRows(call, values);
      if (isRoot) reduction.decode(reduction.reduceBlocks(rows), tensor);
      return;
    }
    // Every rank's tensor is where c10d puts partial results; only the root's is ours to write.
    if (!isRoot && values.is_alias_of(tensor)) values = values.clone();
    Tensors reduced{values};
    auto asked = call.options<c10d::ReduceOptions>();
    asked.reduceOp = reduction.op();
    asked.rootRank = root;
    call.run([&](c10d::Backend& backend) { return backend.reduce(reduced, asked); });
    if (isRoot) reduction.decode(reduced[0], tensor);
  });
}

TorchCommBackend::WorkPtr C10dBackend::all_gather(const Tensors& tensor_list,
                                                  const at::Tensor& tensor, bool async_op,
                                                  const AllGatherOptions& options) {
  return execute(OpName::all_gather, async_op, options, [=](const C10dCall& call) {
    std::vector<Tensors> outputs{bytesOf(tensor_list)};
    Tensors inputs{bytesOf(tensor)};
    call.run([&](c10d::Backend& backend) {
      return backend.allgather(outputs, inputs, call.options<c10d::AllgatherOptions>());
    });
  });
}

TorchCommBackend::WorkPtr C10dBackend::all_gather_v(const Tensors& tensor_list,
                                                    const at::Tensor& tensor, bool async_op,
                                                    const AllGatherOptions& options) {
  return execute(OpName::all_gather_v, async_op, options, [=](const C10dCall& call) {
    const at::Tensor& own = tensor_list[call.rank()];
    if (!sameMemory(own, tensor)) bytesOf(own).copy_(bytesOf(tensor));
    // One broadcast from each rank, all under way at once.
    std::vector<C10dCall::WorkPtr> works;
    for (int root = 0; root < call.size(); ++root) {
      Tensors part{bytesOf(tensor_list[root])};
      auto asked = call.options<c10d::BroadcastOptions>();
      asked.rootRank = root;
      works.push_back(
          call.issue([&](c10d::Backend& backend) { return backend.broadcast(part, asked); }));
    }
    for (const auto& work : works) call.wait(work);
  });
}

TorchCommBackend::WorkPtr C10dBackend::all_gather_single(at::Tensor& output,
                                                         const at::Tensor& input, bool async_op,
                                                         const AllGatherSingleOptions& options) {
  return execute(OpName::all_gather_single, async_op, options, [=](const C10dCall& call) {
    at::Tensor to = bytesOf(output);
    at::Tensor from = bytesOf(input);
    call.run([&](c10d::Backend& backend) {
      return backend._allgather_base(to, from, call.options<c10d::AllgatherOptions>());
    });
  });
}

TorchCommBackend::WorkPtr C10dBackend::reduce_scatter(at::Tensor& output, const Tensors& input_list,
                                                      const ReduceOp& op, bool async_op,
                                                      const ReduceScatterOptions& options) {
  const Reduction reduction = reductionOf(output, op);
  return execute(OpName::reduce_scatter, async_op, options,
                 [=](const C10dCall& call) { reduceScatter(call, reduction, output, input_list); });
}

TorchCommBackend::WorkPtr C10dBackend::reduce_scatter_v(at::Tensor& output,
                                                        const Tensors& input_list,
                                                        const ReduceOp& op, bool async_op,
                                                        const ReduceScatterOptions& options) {
  const Reduction reduction = reductionOf(output, op);
  return execute(OpName::reduce_scatter_v, async_op, options,
                 [=](const C10dCall& call) { reduceScatter(call, reduction, output, input_list); });
}

TorchCommBackend::WorkPtr C10dBackend::reduce_scatter_single(
    at::Tensor& output, const at::Tensor& input, const ReduceOp& op, bool async_op,
    const ReduceScatterSingleOptions& options) {
  const Reduction reduction = reductionOf(output, op);
  return execute(OpName::reduce_scatter_single, async_op, options, [=](const C10dCall& call) {
    reduceScatter(call, reduction, output, input.view({call.size(), -1}).unbind());
  });
}

TorchCommBackend::WorkPtr C10dBackend::all_to_all_single(at::Tensor& output,
                                                         const at::Tensor& input, bool async_op,
                                                         const AllToAllSingleOptions& options) {
  return execute(OpName::all_to_all_single, async_op, options, [=](const C10dCall& call) {
    const at::Tensor from = bytesOf(input);
    const std::vector<int64_t> lengths(call.size(), from.numel() / call.size());
    allToAll(call, bytesOf(output), sameMemory(output, input) ? from.clone() : from, lengths,
             lengths);
  });
}

TorchCommBackend::WorkPtr C10dBackend::all_to_all_v_single(
    at::Tensor& output, const at::Tensor& input, const std::vector<uint64_t>& output_split_sizes,
    const std::vector<uint64_t>& input_split_sizes, bool async_op,
    const AllToAllvSingleOptions& options) {
  const auto bytes = [](const at::Tensor& tensor, const std::vector<uint64_t>& rows) {
    std::vector<int64_t> lengths;
    for (const uint64_t count : rows) {
      lengths.push_back(static_cast<int64_t>(count) * rowSize(tensor) * tensor.element_size());
    }
    return lengths;
  };
  return execute(OpName::all_to_all_v_single, async_op, options,
                 [output, input, to = bytes(output, output_split_sizes),
                  from = bytes(input, input_split_sizes)](const C10dCall& call) {
                   // The splits may leave an end of the tensors untouched.
                   at::Tensor sent = bytesOf(input).narrow(0, 0, sum(from));
                   if (sameMemory(output, input)) sent = sent.clone();
                   allToAll(call, bytesOf(output).narrow(0, 0, sum(to)), sent, to, from);
                 });
}

TorchCommBackend::WorkPtr C10dBackend::all_to_all(const Tensors& output_tensor_list,
                                                  const Tensors& input_tensor_list, bool async_op,
                                                  const AllToAllOptions& options) {
  return execute(OpName::all_to_all, async_op, options, [=](const C10dCall& call) {
    const Tensors outputs = bytesOf(output_tensor_list);
    const Tensors inputs = bytesOf(input_tensor_list);
    const std::vector<int64_t> lengths = lengthsOf(outputs);
    const at::Tensor received = at::empty({sum(lengths)}, outputs[0].options());
    allToAll(call, received, at::cat(inputs), lengths, lengthsOf(inputs));
    const Tensors parts = received.split_with_sizes(lengths);
    for (size_t r = 0; r < parts.size(); ++r) outputs[r].copy_(parts[r]);
  });
}

TorchCommBackend::WorkPtr C10dBackend::barrier(bool async_op, const BarrierOptions& options) {
  return execute(OpName::barrier, async_op, options, [device = device_](const C10dCall& call) {
    if (!device.is_cpu()) {  // c10d's barrier would wait on the CPU
      Tensors word{at::empty({1}, at::TensorOptions(at::kInt).device(device))};
      call.run([&](c10d::Backend& backend) {
        return backend.allreduce(word, call.options<c10d::AllreduceOptions>());
      });
      return;
    }
    call.run([&](c10d::Backend& backend) {
      return backend.barrier(call.options<c10d::BarrierOptions>());
    });
  });
}

TorchCommBackend::WorkPtr C10dBackend::scatter(at::Tensor& output_tensor,
                                               const Tensors& input_tensor_list, int root,
                                               bool async_op, const ScatterOptions& options) {
  return execute(OpName::scatter, async_op, options, [=](const C10dCall& call) {
    Tensors outputs{bytesOf(output_tensor)};
    std::vector<Tensors> inputs;
    if (call.rank() == root) inputs.push_back(bytesOf(input_tensor_list));
    auto asked = call.options<c10d::ScatterOptions>();
    asked.rootRank = root;
    call.run([&](c10d::Backend& backend) { return backend.scatter(outputs, inputs, asked); });
  });
}

TorchCommBackend::WorkPtr C10dBackend::gather(const Tensors& output_tensor_list,
                                              const at::Tensor& input_tensor, int root,
                                              bool async_op, const GatherOptions& options) {
  return execute(OpName::gather, async_op, options, [=](const C10dCall& call) {
    std::vector<Tensors> outputs;
    if (call.rank() == root) outputs.push_back(bytesOf(output_tensor_list));
    Tensors inputs{bytesOf(input_tensor)};
    auto asked = call.options<c10d::GatherOptions>();
    asked.rootRank = root;
    call.run([&](c10d::Backend& backend) { return backend.gather(outputs, inputs, asked); });
  });
}

}  // namespace torch::comms
