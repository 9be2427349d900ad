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

void allReduce(const C10dCall& call, const Reduction& reduction, const at::Tensor& tensor) {
  Tensors values{reduction.encode(tensor)};
  if (!reduction.isCarried()) {
    reduction.decode(reduction.reduceBlocks(gatherRows(call, values[0])), tensor);
    return;
  }
  auto asked = call.options<c10d::AllreduceOptions>();
  asked.reduceOp = reduction.op();
  call.run([&](c10d::Backend& backend) { return backend.allreduce(values, asked); });
  reduction.decode(values[0], tensor);
}

void reduceAtRoot(const C10dCall& call, const Reduction& reduction, const at::Tensor& tensor,
                  int root) {
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
}

/// One broadcast from each rank, all under way at once.
void allGatherV(const C10dCall& call, const Tensors& outputs, const at::Tensor& input) {
  const at::Tensor& own = outputs[call.rank()];
  if (!sameMemory(own, input)) bytesOf(own).copy_(bytesOf(input));
  std::vector<C10dCall::WorkPtr> works;
  for (int root = 0; root < call.size(); ++root) {
    Tensors part{bytesOf(outputs[root])};
    auto asked = call.options<c10d::BroadcastOptions>();
    asked.rootRank = root;
    works.push_back(
        call.issue([&](c10d::Backend& backend) { return backend.broadcast(part, asked); }));
  }
  for (const auto& work : works) call.wait(work);
}

void allToAllLists(const C10dCall& call, const Tensors& outputs, const Tensors& inputs) {
  const std::vector<int64_t> lengths = lengthsOf(outputs);
  const at::Tensor received = at::empty({sum(lengths)}, outputs[0].options());
  allToAll(call, received, at::cat(inputs), lengths, lengthsOf(inputs));
  const Tensors parts = received.split_with_sizes(lengths);
  for (size_t r = 0; r < parts.size(); ++r) outputs[r].copy_(parts[r]);
}

void meet(const C10dCall& call, at::Device device) {
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
}

void gatherAtRoot(const C10dCall& call, const Tensors& parts, const at::Tensor& input, int root) {
  std::vector<Tensors> outputs;
  if (call.rank() == root) outputs.push_back(bytesOf(parts));
  Tensors inputs{bytesOf(input)};
  auto asked = call.options<c10d::GatherOptions>();
  asked.rootRank = root;
  call.run([&](c10d::Backend& backend) { return backend.gather(outputs, inputs, asked); });
}

/// The bytes of so many rows each.
std::vector<int64_t> byteCounts(const at::Tensor& tensor, std::span<const uint64_t> rows) {
  std::vector<int64_t> counts;
  for (const uint64_t count : rows) {
    counts.push_back(static_cast<int64_t>(count) * rowSize(tensor) * tensor.element_size());
  }
  return counts;
}

}  // namespace

TorchCommBackend::WorkPtr C10dBackend::issue(const Call& call) {
  switch (call.op) {
    case OpName::send:
    case OpName::recv:
    case OpName::batch_op_issue:
      return exchange(call);
    case OpName::all_reduce:
    case OpName::reduce:
    case OpName::reduce_scatter:
    case OpName::reduce_scatter_v:
    case OpName::reduce_scatter_single:
      return execute(call, reductionBody(call));
    default:
      return execute(call, movementBody(call));
  }
}

C10dBackend::Body C10dBackend::reductionBody(const Call& call) const {
  const at::Tensor& example = call.outputs.empty() ? call.inputs[0] : call.outputs[0];
  const Reduction reduction(example, *call.reduceOp, getSize(), kind_.reducesBits);
  const Tensors inputs(call.inputs.begin(), call.inputs.end());
  switch (call.op) {
    case OpName::all_reduce:
      return [tensor = example, reduction](const C10dCall& c) { allReduce(c, reduction, tensor); };
    case OpName::reduce:
      return [tensor = inputs[0], reduction, root = call.root](const C10dCall& c) {
        reduceAtRoot(c, reduction, tensor, root);
      };
    case OpName::reduce_scatter_single:
      return [input = inputs[0], output = example, reduction](const C10dCall& c) {
        reduceScatter(c, reduction, output, equalParts(input, c.size()));
      };
    default:
      return [inputs, output = example, reduction](const C10dCall& c) {
        reduceScatter(c, reduction, output, inputs);
      };
  }
}

C10dBackend::Body C10dBackend::movementBody(const Call& call) const {
  const Tensors inputs(call.inputs.begin(), call.inputs.end());
  const Tensors outputs(call.outputs.begin(), call.outputs.end());
  const int root = call.root;
  switch (call.op) {
    case OpName::broadcast:
      return [=](const C10dCall& c) {
        Tensors bytes{bytesOf(outputs[0])};
        auto asked = c.options<c10d::BroadcastOptions>();
        asked.rootRank = root;
        c.run([&](c10d::Backend& backend) { return backend.broadcast(bytes, asked); });
      };
    case OpName::all_gather:
      return [=](const C10dCall& c) {
        std::vector<Tensors> to{bytesOf(outputs)};
        Tensors from{bytesOf(inputs[0])};
        c.run([&](c10d::Backend& backend) {
          return backend.allgather(to, from, c.options<c10d::AllgatherOptions>());
        });
      };
    case OpName::all_gather_v:
      return [=](const C10dCall& c) { allGatherV(c, outputs, inputs[0]); };
    case OpName::all_gather_single:
      return [=](const C10dCall& c) {
        at::Tensor to = bytesOf(outputs[0]);
        at::Tensor from = bytesOf(inputs[0]);
        c.run([&](c10d::Backend& backend) {
          return backend._allgather_base(to, from, c.options<c10d::AllgatherOptions>());
        });
      };
    case OpName::all_to_all_single:
      return [=](const C10dCall& c) {
        const at::Tensor from = bytesOf(inputs[0]);
        const std::vector<int64_t> lengths(c.size(), from.numel() / c.size());
        allToAll(c, bytesOf(outputs[0]), sameMemory(outputs[0], inputs[0]) ? from.clone() : from,
                 lengths, lengths);
      };
    case OpName::all_to_all_v_single:
      return [=, to = byteCounts(outputs[0], call.outputRows),
              from = byteCounts(inputs[0], call.inputRows)](const C10dCall& c) {
        // The splits may leave an end of the tensors untouched.
        at::Tensor sent = bytesOf(inputs[0]).narrow(0, 0, sum(from));
        if (sameMemory(outputs[0], inputs[0])) sent = sent.clone();
        allToAll(c, bytesOf(outputs[0]).narrow(0, 0, sum(to)), sent, to, from);
      };
    case OpName::all_to_all:
      return [=](const C10dCall& c) { allToAllLists(c, bytesOf(outputs), bytesOf(inputs)); };
    case OpName::barrier:
      return [device = device_](const C10dCall& c) { meet(c, device); };
    case OpName::scatter:
      return [=](const C10dCall& c) {
        Tensors to{bytesOf(outputs[0])};
        std::vector<Tensors> from;
        if (c.rank() == root) from.push_back(bytesOf(inputs));
        auto asked = c.options<c10d::ScatterOptions>();
        asked.rootRank = root;
        c.run([&](c10d::Backend& backend) { return backend.scatter(to, from, asked); });
      };
    case OpName::gather:
      return [=](const C10dCall& c) { gatherAtRoot(c, outputs, inputs[0], root); };
    case OpName::gather_single:
      return [parts = outputs.empty() ? outputs : equalParts(outputs[0], getSize()), inputs,
              root](const C10dCall& c) { gatherAtRoot(c, parts, inputs[0], root); };
    default:
      unsupported(call);
  }
}

}  // namespace torch::comms
