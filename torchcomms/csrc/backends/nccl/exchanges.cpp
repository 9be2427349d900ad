// What NcclBackend sends from rank to rank: each is a group of the library's sends and receives.

#include <unordered_set>

#include "torchcomms/csrc/argument_checks.hpp"
#include "torchcomms/csrc/backends/nccl/execute.hpp"

namespace torch::comms {

using nccl::kBytes;
using nccl::readable;
using nccl::writable;

namespace {

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

at::Tensor copied(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  return tensor.clone();
}

}  // namespace

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
