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
std::vector<at::Tensor> rowParts(const at::Tensor& tensor, std::span<const uint64_t> rows) {
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

TorchCommBackend::WorkPtr NcclBackend::exchangeMessages(const Call& call) {
  const std::vector<P2POp> messages = call.messages();
  Tensors tensors;
  tensors.reserve(messages.size());
  for (const P2POp& one : messages) tensors.push_back(one.tensor);
  const bool single = call.op != OpName::batch_op_issue;
  if (single && call.root == kAnySource) unsupported(call);
  if (single && call.root == getRank()) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       call.op == OpName::send ? "Cannot send to self" : "Cannot recv from self",
                       {call.root}, std::string(toString(call.op)),
                       "put the send and the recv into one batch");
  }
  return execute(
      call, messages.size() == 1 ? Form::One : Form::Grouped,
      [&](const Issue& i) {
        for (const P2POp& one : messages) {
          if (one.type == P2POp::Type::SEND) {
            i.send(readable(one.tensor), one.tensor.nbytes(), one.peer);
          } else {
            i.recv(writable(one.tensor), one.tensor.nbytes(), one.peer);
          }
        }
      },
      tensors);
}

TorchCommBackend::WorkPtr NcclBackend::exchangeParts(const Call& call) {
  const bool lists = call.op == OpName::all_to_all;
  const Tensors outputs = lists ? Tensors(call.outputs.begin(), call.outputs.end())
                                : rowParts(call.outputs[0], call.outputRows);
  Tensors sources = lists ? Tensors(call.inputs.begin(), call.inputs.end())
                          : rowParts(sourceOf(call), call.inputRows);
  // The library reads inputs while it writes outputs.
  std::unordered_set<const std::byte*> written;
  for (const at::Tensor& t : outputs) {
    if (t.nbytes() != 0) written.insert(readable(t));
  }
  for (at::Tensor& t : sources) {
    if (written.count(readable(t)) != 0) t = copied(t);
  }
  return execute(
      call, Form::Grouped,
      [&](const Issue& i) {
        for (int r = 0; r < getSize(); ++r) {
          if (sources[r].nbytes() != 0) i.send(readable(sources[r]), sources[r].nbytes(), r);
          if (outputs[r].nbytes() != 0) i.recv(writable(outputs[r]), outputs[r].nbytes(), r);
        }
      },
      sources);
}

TorchCommBackend::WorkPtr NcclBackend::allToAll(const Call& call) {
  const at::Tensor source = sourceOf(call);
  const at::Tensor& output = call.outputs[0];
  const size_t bytes = source.nbytes() / getSize();
  return execute(
      call, library_->alltoAll ? Form::One : Form::Grouped,
      [&](const Issue& i) {
        if (i.library.alltoAll) {
          i.check(i.library.alltoAll(readable(source), writable(output), bytes, kBytes, i.comm,
                                     i.stream),
                  "ncclAlltoAll");
          return;
        }
        for (int r = 0; r < getSize(); ++r) {
          i.send(readable(source) + r * bytes, bytes, r);
          i.recv(writable(output) + r * bytes, bytes, r);
        }
      },
      source);
}

/// The input, or a copy if it is what is written.
at::Tensor NcclBackend::sourceOf(const Call& call) {
  const at::Tensor& input = call.inputs[0];
  return readable(input) == readable(call.outputs[0]) ? copied(input) : input;
}

TorchCommBackend::WorkPtr NcclBackend::scatterParts(const Call& call) {
  const at::Tensor& output = call.outputs[0];
  const size_t bytes = output.nbytes();
  return execute(call, Form::Grouped, [&](const Issue& i) {
    if (bytes == 0) return;
    const bool isRoot = getRank() == call.root;
    const bool inPlace = isRoot && readable(call.inputs[call.root]) == readable(output);
    for (int r = 0; isRoot && r < getSize(); ++r) {
      if (r != call.root || !inPlace) i.send(readable(call.inputs[r]), bytes, r);
    }
    if (!inPlace) i.recv(writable(output), bytes, call.root);
  });
}

TorchCommBackend::WorkPtr NcclBackend::gatherParts(const Call& call) {
  const at::Tensor& input = call.inputs[0];
  const size_t bytes = input.nbytes();
  return execute(call, Form::Grouped, [&](const Issue& i) {
    if (bytes == 0) return;
    const bool isRoot = getRank() == call.root;
    const bool isList = call.op == OpName::gather;
    const auto part = [&](int r) {
      return isList ? writable(call.outputs[r]) : writable(call.outputs[0]) + r * bytes;
    };
    const bool inPlace = isRoot && readable(input) == part(call.root);
    if (!inPlace) i.send(readable(input), bytes, call.root);
    for (int r = 0; isRoot && r < getSize(); ++r) {
      if (r != call.root || !inPlace) i.recv(part(r), bytes, r);
    }
  });
}

}  // namespace torch::comms
