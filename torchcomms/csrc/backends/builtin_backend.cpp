// The operations of TorchCommBackend as calls.

#include "torchcomms/csrc/backends/builtin_backend.hpp"

namespace torch::comms {

namespace {

using List = std::span<const at::Tensor>;

List one(const at::Tensor& tensor) { return {&tensor, 1}; }

}  // namespace

void BuiltinBackend::unsupported(const Call& call) const {
  if (call.op == OpName::recv && call.root == kAnySource) unsupported("recv from any source");
  unsupported(toString(call.op));
}

TorchCommBackend::WorkPtr BuiltinBackend::send(const at::Tensor& tensor, int dst, bool async_op,
                                               const SendOptions& options) {
  return issue({OpName::send, async_op, options, one(tensor), {}, dst, nullptr, options.tag});
}

TorchCommBackend::WorkPtr BuiltinBackend::recv(at::Tensor& tensor, int src, bool async_op,
                                               const RecvOptions& options) {
  return issue({OpName::recv, async_op, options, {}, one(tensor), src, nullptr, options.tag});
}

TorchCommBackend::WorkPtr BuiltinBackend::recvAnySource(at::Tensor& tensor, bool async_op,
                                                        const RecvOptions& options) {
  return recv(tensor, kAnySource, async_op, options);
}

TorchCommBackend::WorkPtr BuiltinBackend::batch_op_issue(const std::vector<P2POp>& ops,
                                                         bool async_op,
                                                         const BatchP2POptions& options) {
  Call call{OpName::batch_op_issue, async_op, options};
  call.batch = ops;
  return issue(call);
}

TorchCommBackend::WorkPtr BuiltinBackend::broadcast(at::Tensor& tensor, int root, bool async_op,
                                                    const BroadcastOptions& options) {
  return issue({OpName::broadcast, async_op, options, {}, one(tensor), root});
}

TorchCommBackend::WorkPtr BuiltinBackend::all_reduce(at::Tensor& tensor, const ReduceOp& op,
                                                     bool async_op,
                                                     const AllReduceOptions& options) {
  return issue({OpName::all_reduce, async_op, options, one(tensor), one(tensor), 0, &op});
}

TorchCommBackend::WorkPtr BuiltinBackend::reduce(at::Tensor& tensor, int root, const ReduceOp& op,
                                                 bool async_op, const ReduceOptions& options) {
  return issue({OpName::reduce, async_op, options, one(tensor),
                getRank() == root ? one(tensor) : List(), root, &op});
}

TorchCommBackend::WorkPtr BuiltinBackend::all_gather(const Tensors& tensor_list,
                                                     const at::Tensor& tensor, bool async_op,
                                                     const AllGatherOptions& options) {
  return issue({OpName::all_gather, async_op, options, one(tensor), tensor_list});
}

TorchCommBackend::WorkPtr BuiltinBackend::all_gather_v(const Tensors& tensor_list,
                                                       const at::Tensor& tensor, bool async_op,
                                                       const AllGatherOptions& options) {
  return issue({OpName::all_gather_v, async_op, options, one(tensor), tensor_list});
}

TorchCommBackend::WorkPtr BuiltinBackend::all_gather_single(at::Tensor& output,
                                                            const at::Tensor& input, bool async_op,
                                                            const AllGatherSingleOptions& options) {
  Call call{OpName::all_gather_single, async_op, options, one(input), one(output)};
  call.prepared = options.prepared ? &options.prepared : nullptr;
  return issue(call);
}

TorchCommBackend::WorkPtr BuiltinBackend::reduce_scatter(at::Tensor& output,
                                                         const Tensors& input_list,
                                                         const ReduceOp& op, bool async_op,
                                                         const ReduceScatterOptions& options) {
  return issue({OpName::reduce_scatter, async_op, options, input_list, one(output), 0, &op});
}

TorchCommBackend::WorkPtr BuiltinBackend::reduce_scatter_v(at::Tensor& output,
                                                           const Tensors& input_list,
                                                           const ReduceOp& op, bool async_op,
                                                           const ReduceScatterOptions& options) {
  return issue({OpName::reduce_scatter_v, async_op, options, input_list, one(output), 0, &op});
}

TorchCommBackend::WorkPtr BuiltinBackend::reduce_scatter_single(
    at::Tensor& output, const at::Tensor& input, const ReduceOp& op, bool async_op,
    const ReduceScatterSingleOptions& options) {
  return issue({OpName::reduce_scatter_single, async_op, options, one(input), one(output), 0, &op});
}

TorchCommBackend::WorkPtr BuiltinBackend::reduce_scatter_quantized(
    at::Tensor& output, const at::Tensor& input, const ReduceOp& op, const at::Tensor& seed,
    bool async_op, const ReduceScatterSingleOptions& options) {
  Call call{OpName::reduce_scatter_quantized, async_op, options, one(input), one(output), 0, &op};
  call.seed = &seed;
  return issue(call);
}

TorchCommBackend::WorkPtr BuiltinBackend::all_to_all_single(at::Tensor& output,
                                                            const at::Tensor& input, bool async_op,
                                                            const AllToAllSingleOptions& options) {
  Call call{OpName::all_to_all_single, async_op, options, one(input), one(output)};
  call.prepared = options.prepared ? &options.prepared : nullptr;
  return issue(call);
}

TorchCommBackend::WorkPtr BuiltinBackend::all_to_all_v_single(
    at::Tensor& output, const at::Tensor& input, const std::vector<uint64_t>& output_split_sizes,
    const std::vector<uint64_t>& input_split_sizes, bool async_op,
    const AllToAllvSingleOptions& options) {
  Call call{OpName::all_to_all_v_single, async_op, options, one(input), one(output)};
  call.inputRows = input_split_sizes;
  call.outputRows = output_split_sizes;
  return issue(call);
}

TorchCommBackend::WorkPtr BuiltinBackend::all_to_all(const Tensors& output_tensor_list,
                                                     const Tensors& input_tensor_list,
                                                     bool async_op,
                                                     const AllToAllOptions& options) {
  return issue({OpName::all_to_all, async_op, options, input_tensor_list, output_tensor_list});
}

TorchCommBackend::WorkPtr BuiltinBackend::exchange_rows(const RowExchangeCall& rows, bool async_op,
                                                        const AllToAllvSingleOptions& options) {
  Call call{rows.op, async_op, options};
  call.rows = &rows;
  return issue(call);
}

TorchCommBackend::WorkPtr BuiltinBackend::barrier(bool async_op, const BarrierOptions& options) {
  return issue({OpName::barrier, async_op, options});
}

TorchCommBackend::WorkPtr BuiltinBackend::scatter(at::Tensor& output_tensor,
                                                  const Tensors& input_tensor_list, int root,
                                                  bool async_op, const ScatterOptions& options) {
  return issue({OpName::scatter, async_op, options,
                getRank() == root ? List(input_tensor_list) : List(), one(output_tensor), root});
}

TorchCommBackend::WorkPtr BuiltinBackend::gather(const Tensors& output_tensor_list,
                                                 const at::Tensor& input_tensor, int root,
                                                 bool async_op, const GatherOptions& options) {
  return issue({OpName::gather, async_op, options, one(input_tensor),
                getRank() == root ? List(output_tensor_list) : List(), root});
}

TorchCommBackend::WorkPtr BuiltinBackend::gather_single(at::Tensor& output, const at::Tensor& input,
                                                        int root, bool async_op,
                                                        const GatherSingleOptions& options) {
  return issue({OpName::gather_single, async_op, options, one(input),
                getRank() == root ? one(output) : List(), root});
}

}  // namespace torch::comms
