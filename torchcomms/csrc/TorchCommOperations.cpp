#include <ATen/ops/randint.h>

#include <comms/torchcomms/TorchComm.hpp>
#include <optional>

#include "torchcomms/csrc/argument_checks.hpp"
#include "torchcomms/csrc/call_recorder.hpp"
#include "torchcomms/csrc/hints.hpp"
#include "torchcomms/csrc/hook_registry.hpp"
#include "torchcomms/csrc/profiled_call.hpp"

// The operations of TorchComm: each checks its arguments, and calls the backend between hooks.

namespace torch::comms {

namespace {

/// The message also says how many elements there are, and how many there should be.
void requireElements(const ArgumentChecks& check, int64_t got, int64_t wanted,
                     std::string_view message) {
  if (got == wanted) [[likely]]
    return;
  check.require(false, std::string(message) + ": got " + std::to_string(got) +
                           " elements instead of " + std::to_string(wanted));
}

}  // namespace

ArgumentChecks TorchComm::begin(OpName op) const {
  const ArgumentChecks check{op, rank_, size_, device_, impl_->getBackendName()};
  if (finalized_) [[unlikely]] {
    check.fail("TorchComm '" + std::string(getCommName()) + "' already finalized");
  }
  return check;
}

template <typename Args, typename Issue, typename... Fields>
TorchComm::WorkPtr TorchComm::hooked(OpName op, bool async_op, const OpOptions& options,
                                     Issue issue, const Fields&... fields) {
  if (!options.hints.empty()) [[unlikely]]
    checkHintsOfCall(options.hints);
  const bool isSeen = ProfiledCall::isSeen();
  CallRecorder* const recorder = hooks_->recorder();
  if (!hooks_->active() && !isSeen && recorder == nullptr) [[likely]]
    return issue();
  const auto timeout = options.timeout == kNoTimeout ? getOptions().timeout : options.timeout;
  const PreHookArgs args = Args{{async_op, timeout}, fields...};
  std::optional<ProfiledCall> profiled;
  if (isSeen) profiled.emplace(*impl_, op, viewOf(args));
  const auto recorded = [&] {
    return recorder != nullptr ? recorder->around(op, args, issue) : issue();
  };
  return hooks_->active() ? hooks_->around(op, args, recorded) : recorded();
}

TorchComm::WorkPtr TorchComm::send(const at::Tensor& tensor, int dst, bool async_op,
                                   const SendOptions& options) {
  const ArgumentChecks check = begin(OpName::send);
  check.inRange("dst", dst);
  check.usable(tensor);
  return hooked<SendPreHookArgs>(
      OpName::send, async_op, options, [&] { return impl_->send(tensor, dst, async_op, options); },
      tensor, dst);
}

TorchComm::WorkPtr TorchComm::recv(at::Tensor& tensor, int src, bool async_op,
                                   const RecvOptions& options) {
  const ArgumentChecks check = begin(OpName::recv);
  check.inRange("src", src);
  check.usable(tensor);
  return hooked<RecvPreHookArgs>(
      OpName::recv, async_op, options, [&] { return impl_->recv(tensor, src, async_op, options); },
      tensor, src);
}

TorchComm::WorkPtr TorchComm::recvAnySource(at::Tensor& tensor, bool async_op,
                                            const RecvOptions& options) {
  const ArgumentChecks check = begin(OpName::recv);
  check.usable(tensor);
  return hooked<RecvPreHookArgs>(
      OpName::recv, async_op, options,
      [&] { return impl_->recvAnySource(tensor, async_op, options); }, tensor, -1);
}

void TorchComm::checkMessage(const P2POp& op) const {
  const ArgumentChecks check = begin(OpName::batch_op_issue);
  check.inRange(op.type == P2POp::Type::SEND ? "dst" : "src", op.peer);
  check.usable(op.tensor);
}

TorchComm::WorkPtr TorchComm::batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                                             const BatchP2POptions& options) {
  begin(OpName::batch_op_issue).require(!ops.empty(), "Cannot issue empty batch operation");
  for (const P2POp& op : ops) checkMessage(op);
  return hooked<BatchOpIssuePreHookArgs>(
      OpName::batch_op_issue, async_op, options,
      [&] { return impl_->batch_op_issue(ops, async_op, options); }, ops, ops.size());
}

TorchComm::WorkPtr TorchComm::broadcast(at::Tensor& tensor, int root, bool async_op,
                                        const BroadcastOptions& options) {
  const ArgumentChecks check = begin(OpName::broadcast);
  check.inRange("root", root);
  check.usable(tensor);
  return hooked<BroadcastPreHookArgs>(
      OpName::broadcast, async_op, options,
      [&] { return impl_->broadcast(tensor, root, async_op, options); }, tensor, root);
}

TorchComm::WorkPtr TorchComm::all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                                         const AllReduceOptions& options) {
  const ArgumentChecks check = begin(OpName::all_reduce);
  check.usable(tensor);
  check.reducible(op);
  return hooked<AllReducePreHookArgs>(
      OpName::all_reduce, async_op, options,
      [&] { return impl_->all_reduce(tensor, op, async_op, options); }, tensor, op);
}

TorchComm::WorkPtr TorchComm::reduce(at::Tensor& tensor, int root, const ReduceOp& op,
                                     bool async_op, const ReduceOptions& options) {
  const ArgumentChecks check = begin(OpName::reduce);
  check.inRange("root", root);
  check.usable(tensor);
  check.reducible(op);
  return hooked<ReducePreHookArgs>(
      OpName::reduce, async_op, options,
      [&] { return impl_->reduce(tensor, root, op, async_op, options); }, tensor, root, op);
}

TorchComm::WorkPtr TorchComm::all_gather(const Tensors& tensor_list, const at::Tensor& tensor,
                                         bool async_op, const AllGatherOptions& options) {
  const ArgumentChecks check = begin(OpName::all_gather);
  check.onePerRank(tensor_list, "tensor_list size must equal comm_size for all_gather");
  check.usable(tensor);
  check.usable(tensor_list);
  check.sameType(tensor, tensor_list);
  check.allOfSize(tensor_list, tensor.numel(),
                  "All tensors in tensor_list must have same size as input tensor");
  return hooked<AllGatherPreHookArgs>(
      OpName::all_gather, async_op, options,
      [&] { return impl_->all_gather(tensor_list, tensor, async_op, options); }, tensor,
      tensor_list);
}

TorchComm::WorkPtr TorchComm::all_gather_v(const Tensors& tensor_list, const at::Tensor& tensor,
                                           bool async_op, const AllGatherOptions& options) {
  const ArgumentChecks check = begin(OpName::all_gather_v);
  check.onePerRank(tensor_list, "tensor_list size must equal comm_size for all_gather_v");
  check.usable(tensor);
  check.usable(tensor_list);
  check.sameType(tensor, tensor_list);
  requireElements(check, tensor_list[rank_].numel(), tensor.numel(),
                  "Output tensor size must equal input tensor size for all_gather_v");
  return hooked<AllGatherVPreHookArgs>(
      OpName::all_gather_v, async_op, options,
      [&] { return impl_->all_gather_v(tensor_list, tensor, async_op, options); }, tensor,
      tensor_list);
}

TorchComm::WorkPtr TorchComm::all_gather_single(at::Tensor& output, const at::Tensor& input,
                                                bool async_op,
                                                const AllGatherSingleOptions& options) {
  const ArgumentChecks check = begin(OpName::all_gather_single);
  check.usable(output);
  check.usable(input);
  check.sameType(input, output);
  requireElements(check, output.numel(), input.numel() * size_,
                  "Output tensor size must be input_size * comm_size for all_gather_single");
  check.inPlaceOrApart(output, input);
  return hooked<AllGatherSinglePreHookArgs>(
      OpName::all_gather_single, async_op, options,
      [&] { return impl_->all_gather_single(output, input, async_op, options); }, input, output);
}

TorchComm::WorkPtr TorchComm::reduce_scatter(at::Tensor& output, const Tensors& input_list,
                                             const ReduceOp& op, bool async_op,
                                             const ReduceScatterOptions& options) {
  const ArgumentChecks check = begin(OpName::reduce_scatter);
  check.onePerRank(input_list, "input_list size must equal comm_size for reduce_scatter");
  check.usable(output);
  check.usable(input_list);
  check.sameType(output, input_list);
  check.reducible(op);
  check.allOfSize(input_list, output.numel(),
                  "All input tensors must have same size as output tensor");
  return hooked<ReduceScatterPreHookArgs>(
      OpName::reduce_scatter, async_op, options,
      [&] { return impl_->reduce_scatter(output, input_list, op, async_op, options); }, input_list,
      output, op);
}

TorchComm::WorkPtr TorchComm::reduce_scatter_v(at::Tensor& output, const Tensors& input_list,
                                               const ReduceOp& op, bool async_op,
                                               const ReduceScatterOptions& options) {
  const ArgumentChecks check = begin(OpName::reduce_scatter_v);
  check.onePerRank(input_list, "input_list size must equal comm_size for reduce_scatter_v");
  check.usable(output);
  check.usable(input_list);
  check.sameType(output, input_list);
  check.reducible(op);
  requireElements(check, input_list[rank_].numel(), output.numel(),
                  "Output tensor size must equal input tensor size for reduce_scatter_v");
  return hooked<ReduceScatterVPreHookArgs>(
      OpName::reduce_scatter_v, async_op, options,
      [&] { return impl_->reduce_scatter_v(output, input_list, op, async_op, options); },
      input_list, output, op);
}

TorchComm::WorkPtr TorchComm::reduce_scatter_single(at::Tensor& output, const at::Tensor& input,
                                                    const ReduceOp& op, bool async_op,
                                                    const ReduceScatterSingleOptions& options) {
  const ArgumentChecks check = begin(OpName::reduce_scatter_single);
  check.usable(output);
  check.usable(input);
  check.sameType(input, output);
  check.reducible(op);
  requireElements(check, input.numel(), output.numel() * size_,
                  "Input tensor size must be output_size * comm_size for reduce_scatter_single");
  check.inPlaceOrApart(input, output);
  return hooked<ReduceScatterSinglePreHookArgs>(
      OpName::reduce_scatter_single, async_op, options,
      [&] { return impl_->reduce_scatter_single(output, input, op, async_op, options); }, input,
      output, op);
}

TorchComm::WorkPtr TorchComm::reduce_scatter_quantized(at::Tensor& output, const at::Tensor& input,
                                                       const ReduceOp& op, const at::Tensor& seed,
                                                       bool async_op,
                                                       const ReduceScatterSingleOptions& options) {
  const ArgumentChecks check = begin(OpName::reduce_scatter_quantized);
  check.usable(output);
  check.usable(input);
  check.require(input.scalar_type() == at::kFloat && output.scalar_type() == at::kFloat,
                "Input and output must be float32 tensors for reduce_scatter_quantized");
  check.require(op.type() == RedOpType::SUM || op.type() == RedOpType::AVG,
                "op must be SUM or AVG for reduce_scatter_quantized");
  requireElements(check, input.numel(), output.numel() * size_,
                  "Input tensor size must be output_size * comm_size for reduce_scatter_quantized");
  check.inPlaceOrApart(input, output);
  at::Tensor number = seed;
  if (!number.defined()) number = at::randint(int64_t{1} << 62, {1}, at::kLong);
  check.require(number.scalar_type() == at::kLong && number.numel() == 1,
                "seed must be an int64 tensor of one element for reduce_scatter_quantized");
  if (!number.device().is_cpu()) check.usable(number);
  return hooked<ReduceScatterSinglePreHookArgs>(
      OpName::reduce_scatter_quantized, async_op, options,
      [&] { return impl_->reduce_scatter_quantized(output, input, op, number, async_op, options); },
      input, output, op);
}

TorchComm::WorkPtr TorchComm::all_to_all_single(at::Tensor& output, const at::Tensor& input,
                                                bool async_op,
                                                const AllToAllSingleOptions& options) {
  const ArgumentChecks check = begin(OpName::all_to_all_single);
  check.usable(output);
  check.usable(input);
  check.sameType(input, output);
  requireElements(check, input.numel(), output.numel(),
                  "Input and output tensors must have same size for all_to_all_single");
  check.require(input.numel() % size_ == 0,
                "Tensor size must be divisible by comm_size for all_to_all_single");
  check.sameOrApart(output, input);
  return hooked<AllToAllSinglePreHookArgs>(
      OpName::all_to_all_single, async_op, options,
      [&] { return impl_->all_to_all_single(output, input, async_op, options); }, input, output);
}

TorchComm::WorkPtr TorchComm::all_to_all_v_single(at::Tensor& output, const at::Tensor& input,
                                                  const std::vector<uint64_t>& output_split_sizes,
                                                  const std::vector<uint64_t>& input_split_sizes,
                                                  bool async_op,
                                                  const AllToAllvSingleOptions& options) {
  const ArgumentChecks check = begin(OpName::all_to_all_v_single);
  check.usable(output);
  check.usable(input);
  check.sameType(input, output);
  check.splits(output, output_split_sizes, "output");
  check.splits(input, input_split_sizes, "input");
  check.require(rowSize(output) == rowSize(input),
                "Rows of input and output must have same size for all_to_all_v_single");
  check.require(input_split_sizes[rank_] == output_split_sizes[rank_],
                "What a rank sends to itself must have one size in input_split_sizes and "
                "output_split_sizes for all_to_all_v_single");
  return hooked<AllToAllVSinglePreHookArgs>(
      OpName::all_to_all_v_single, async_op, options,
      [&] {
        return impl_->all_to_all_v_single(output, input, output_split_sizes, input_split_sizes,
                                          async_op, options);
      },
      input, output, input_split_sizes, output_split_sizes);
}

TorchComm::WorkPtr TorchComm::all_to_all(const Tensors& output_tensor_list,
                                         const Tensors& input_tensor_list, bool async_op,
                                         const AllToAllOptions& options) {
  const ArgumentChecks check = begin(OpName::all_to_all);
  check.onePerRank(output_tensor_list, "Tensor list sizes must equal comm_size for all_to_all");
  check.onePerRank(input_tensor_list, "Tensor list sizes must equal comm_size for all_to_all");
  check.usable(output_tensor_list);
  check.usable(input_tensor_list);
  check.sameType(input_tensor_list[0], input_tensor_list);
  check.sameType(input_tensor_list[0], output_tensor_list);
  check.require(input_tensor_list[rank_].numel() == output_tensor_list[rank_].numel(),
                "What a rank sends to itself must have same size in input and output for "
                "all_to_all");
  return hooked<AllToAllPreHookArgs>(
      OpName::all_to_all, async_op, options,
      [&] { return impl_->all_to_all(output_tensor_list, input_tensor_list, async_op, options); },
      input_tensor_list, output_tensor_list);
}

TorchComm::WorkPtr TorchComm::exchangeRows(const RowExchangeCall& call, bool async_op,
                                           const AllToAllvSingleOptions& options) {
  return hooked<AllToAllVDynamicPreHookArgs>(
      call.op, async_op, options, [&] { return impl_->exchange_rows(call, async_op, options); },
      call.input, call.output, call.sendCounts,
      call.received.defined() ? call.received : call.expected);
}

TorchComm::WorkPtr TorchComm::barrier(bool async_op, const BarrierOptions& options) {
  begin(OpName::barrier);
  return hooked<BarrierPreHookArgs>(OpName::barrier, async_op, options,
                                    [&] { return impl_->barrier(async_op, options); });
}

TorchComm::WorkPtr TorchComm::scatter(at::Tensor& output_tensor, const Tensors& input_tensor_list,
                                      int root, bool async_op, const ScatterOptions& options) {
  const ArgumentChecks check = begin(OpName::scatter);
  check.inRange("root", root);
  check.usable(output_tensor);
  if (rank_ == root) {
    check.onePerRank(input_tensor_list, "input_tensor_list size must equal comm_size for scatter");
    check.usable(input_tensor_list);
    check.sameType(output_tensor, input_tensor_list);
    check.allOfSize(input_tensor_list, output_tensor.numel(),
                    "All input tensors must have same size as output tensor");
  }
  return hooked<ScatterPreHookArgs>(
      OpName::scatter, async_op, options,
      [&] { return impl_->scatter(output_tensor, input_tensor_list, root, async_op, options); },
      input_tensor_list, output_tensor, root);
}

TorchComm::WorkPtr TorchComm::gather(const Tensors& output_tensor_list,
                                     const at::Tensor& input_tensor, int root, bool async_op,
                                     const GatherOptions& options) {
  const ArgumentChecks check = begin(OpName::gather);
  check.inRange("root", root);
  check.usable(input_tensor);
  if (rank_ == root) {
    check.onePerRank(output_tensor_list, "output_tensor_list size must equal comm_size for gather");
    check.usable(output_tensor_list);
    check.sameType(input_tensor, output_tensor_list);
    check.allOfSize(output_tensor_list, input_tensor.numel(),
                    "All output tensors must have same size as input tensor");
  }
  return hooked<GatherPreHookArgs>(
      OpName::gather, async_op, options,
      [&] { return impl_->gather(output_tensor_list, input_tensor, root, async_op, options); },
      input_tensor, output_tensor_list, root);
}

TorchComm::WorkPtr TorchComm::gather_single(at::Tensor& output, const at::Tensor& input, int root,
                                            bool async_op, const GatherSingleOptions& options) {
  const ArgumentChecks check = begin(OpName::gather_single);
  check.inRange("root", root);
  check.usable(input);
  if (rank_ == root) {
    check.usable(output);
    check.sameType(input, output);
    requireElements(check, output.numel(), input.numel() * size_,
                    "Output tensor size must be input_size * comm_size for gather_single");
    check.inPlaceOrApart(output, input);
  }
  return hooked<GatherSinglePreHookArgs>(
      OpName::gather_single, async_op, options,
      [&] { return impl_->gather_single(output, input, root, async_op, options); }, input, output,
      root);
}

void BatchSendRecv::send(const at::Tensor& tensor, int dst, int tag) {
  comm_->checkMessage({P2POp::Type::SEND, tensor, dst, tag});
  ops.push_back({P2POp::Type::SEND, tensor, dst, tag});
}

void BatchSendRecv::recv(const at::Tensor& tensor, int src, int tag) {
  comm_->checkMessage({P2POp::Type::RECV, tensor, src, tag});
  ops.push_back({P2POp::Type::RECV, tensor, src, tag});
}

c10::intrusive_ptr<TorchWork> BatchSendRecv::issue(bool async_op, const BatchP2POptions& options) {
  return comm_->batch_op_issue(ops, async_op, options);
}

}  // namespace torch::comms
