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

/// Whether the tensors, all of one size, lie one after another.
bool isFlat(const std::vector<at::Tensor>& tensors) {
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (readable(tensors[i]) != readable(tensors[0]) + i * tensors[0].nbytes()) return false;
  }
  return true;
}

/// The tensors one after another in new memory, by work on the current stream.
at::Tensor joined(const std::vector<at::Tensor>& tensors) {
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  std::vector<at::Tensor> flat;
  flat.reserve(tensors.size());
  for (const at::Tensor& t : tensors) flat.push_back(t.view({-1}));
  return at::cat(flat);
}

}  // namespace

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

}  // namespace torch::comms
