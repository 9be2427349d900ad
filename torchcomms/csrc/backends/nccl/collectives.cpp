// The collectives of NcclBackend: what each asks of the library.
//
// What is only moved is moved as bytes, so every dtype can be. Lists of tensors of one size take
// one flat call: in place where they lie one after another, else through a buffer. Lists of tensors
// of several sizes take a group of calls that the library runs as one.

#include "torchcomms/csrc/backends/nccl/execute.hpp"

namespace torch::comms {

using nccl::DataType;
using nccl::Element;
using nccl::kBytes;
using nccl::readable;
using nccl::RedOp;
using nccl::writable;

namespace {

/// Returns whether the tensors, all of one size, lie one after another.
bool isFlat(std::span<const at::Tensor> tensors) {
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (readable(tensors[i]) != readable(tensors[0]) + i * tensors[0].nbytes()) return false;
  }
  return true;
}

/// The tensors one after another in new memory, by work on the current stream.
at::Tensor joined(std::span<const at::Tensor> tensors) {
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  std::vector<at::Tensor> flat;
  flat.reserve(tensors.size());
  for (const at::Tensor& t : tensors) flat.push_back(t.view({-1}));
  return at::cat(flat);
}

}  // namespace

TorchCommBackend::WorkPtr NcclBackend::issue(const Call& call) {
  switch (call.op) {
    case OpName::send:
    case OpName::recv:
    case OpName::batch_op_issue:
      return exchangeMessages(call);
    case OpName::broadcast:
      return execute(call, Form::One, [&](const Issue& i) {
        void* data = writable(call.outputs[0]);
        i.check(i.library.broadcast(data, data, call.outputs[0].nbytes(), kBytes, call.root, i.comm,
                                    i.stream),
                "ncclBroadcast");
      });
    case OpName::all_reduce:
      return executeReduction(
          call, Form::One, call.outputs[0], [&](const Issue& i, const Element& e, RedOp redOp) {
            void* data = writable(call.outputs[0]);
            i.check(i.library.allReduce(data, data, call.outputs[0].numel() * e.perElement, e.type,
                                        redOp, i.comm, i.stream),
                    "ncclAllReduce");
          });
    case OpName::reduce:
      return executeReduction(
          call, Form::One, call.inputs[0], [&](const Issue& i, const Element& e, RedOp redOp) {
            void* result = call.outputs.empty() ? nullptr : writable(call.outputs[0]);
            i.check(i.library.reduce(readable(call.inputs[0]), result,
                                     call.inputs[0].numel() * e.perElement, e.type, redOp,
                                     call.root, i.comm, i.stream),
                    "ncclReduce");
          });
    case OpName::all_gather:
      return gatherLists(call);
    case OpName::all_gather_v:
      return execute(call, Form::Grouped, [&](const Issue& i) {
        for (int r = 0; r < getSize(); ++r) {
          const at::Tensor& output = call.outputs[r];
          const at::Tensor& input = r == getRank() ? call.inputs[0] : output;
          i.check(i.library.broadcast(readable(input), writable(output), output.nbytes(), kBytes, r,
                                      i.comm, i.stream),
                  "ncclBroadcast");
        }
      });
    case OpName::all_gather_single:
      return execute(call, Form::One, [&](const Issue& i) {
        i.check(i.library.allGather(readable(call.inputs[0]), writable(call.outputs[0]),
                                    call.inputs[0].nbytes(), kBytes, i.comm, i.stream),
                "ncclAllGather");
      });
    case OpName::reduce_scatter:
      return reduceScatter(call, isFlat(call.inputs) ? call.inputs[0] : joined(call.inputs));
    case OpName::reduce_scatter_single:
      return reduceScatter(call, call.inputs[0]);
    case OpName::reduce_scatter_v:
      return executeReduction(
          call, Form::Grouped, call.outputs[0], [&](const Issue& i, const Element& e, RedOp redOp) {
            for (int r = 0; r < getSize(); ++r) {
              const at::Tensor& input = call.inputs[r];
              void* result = r == getRank() ? writable(call.outputs[0]) : nullptr;
              i.check(i.library.reduce(readable(input), result, input.numel() * e.perElement,
                                       e.type, redOp, r, i.comm, i.stream),
                      "ncclReduce");
            }
          });
    case OpName::all_to_all_single:
      return allToAll(call);
    case OpName::all_to_all_v_single:
    case OpName::all_to_all:
      return exchangeParts(call);
    case OpName::barrier:
      return execute(
          call, Form::One,
          [&](const Issue& i) {
            void* word = writable(barrierWord_);
            i.check(
                i.library.allReduce(word, word, 1, DataType::Float32, nccl::kSum, i.comm, i.stream),
                "ncclAllReduce");
          },
          barrierWord_);
    case OpName::scatter:
      return scatterParts(call);
    case OpName::gather:
    case OpName::gather_single:
      return gatherParts(call);
    default:
      unsupported(call);
  }
}

TorchCommBackend::WorkPtr NcclBackend::gatherLists(const Call& call) {
  // Only the rank itself knows where its list lies, so all ranks make the same call.
  const bool flat = isFlat(call.outputs);
  const at::Tensor& own = call.inputs[0];
  const size_t bytes = own.nbytes();
  at::Tensor whole = call.outputs[0];
  if (!flat) whole = at::empty({getSize() * own.numel()}, own.options());
  return executeThen(
      call, Form::One,
      [&](const Issue& i) {
        i.check(
            i.library.allGather(readable(own), writable(whole), bytes, kBytes, i.comm, i.stream),
            "ncclAllGather");
      },
      [&](nccl::Stream stream) {
        for (int r = 0; !flat && bytes != 0 && r < getSize(); ++r) {
          group().copy(writable(call.outputs[r]), readable(whole) + r * bytes, bytes, stream);
        }
      },
      whole);
}

TorchCommBackend::WorkPtr NcclBackend::reduceScatter(const Call& call, const at::Tensor& input) {
  const at::Tensor& output = call.outputs[0];
  return executeReduction(
      call, Form::One, output,
      [&](const Issue& i, const Element& e, RedOp redOp) {
        i.check(
            i.library.reduceScatter(readable(input), writable(output),
                                    output.numel() * e.perElement, e.type, redOp, i.comm, i.stream),
            "ncclReduceScatter");
      },
      input);
}

}  // namespace torch::comms
