#include <comms/torchcomms/TorchComm.hpp>
#include <numeric>

#include "ctran/base/error.h"
#include "torchcomms/csrc/argument_checks.hpp"

namespace torch::comms {

namespace {

std::vector<int> firstRanks(int count) {
  std::vector<int> ranks(count);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

TorchComm::TorchComm(std::shared_ptr<TorchCommBackend> backend)
    : TorchComm(backend, firstRanks(backend->getSize())) {}

TorchComm::TorchComm(std::shared_ptr<TorchCommBackend> backend, std::vector<int> ranks)
    : impl_(std::move(backend)),
      device_(impl_->getDevice()),
      rank_(impl_->getRank()),
      size_(impl_->getSize()),
      ranks_(std::move(ranks)) {}

ArgumentChecks TorchComm::begin(OpName op) const {
  const ArgumentChecks check{op, rank_, size_, device_, impl_->getBackendName()};
  if (finalized_) [[unlikely]] {
    check.fail("TorchComm '" + std::string(getCommName()) + "' already finalized");
  }
  return check;
}

void TorchComm::finalize() {
  begin(OpName::finalize);
  finalized_ = true;
  impl_->finalize();
}

TorchComm::WorkPtr TorchComm::send(const at::Tensor& tensor, int dst, bool async_op,
                                   const SendOptions& options) {
  const ArgumentChecks check = begin(OpName::send);
  check.inRange("dst", dst);
  check.usable(tensor);
  return impl_->send(tensor, dst, async_op, options);
}

TorchComm::WorkPtr TorchComm::recv(at::Tensor& tensor, int src, bool async_op,
                                   const RecvOptions& options) {
  const ArgumentChecks check = begin(OpName::recv);
  check.inRange("src", src);
  check.usable(tensor);
  return impl_->recv(tensor, src, async_op, options);
}

TorchComm::WorkPtr TorchComm::batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                                             const BatchP2POptions& options) {
  const ArgumentChecks check = begin(OpName::batch_op_issue);
  check.require(!ops.empty(), "Cannot issue empty batch operation");
  for (const P2POp& op : ops) {
    check.inRange(op.type == P2POp::Type::SEND ? "dst" : "src", op.peer);
    check.usable(op.tensor);
  }
  return impl_->batch_op_issue(ops, async_op, options);
}

TorchComm::WorkPtr TorchComm::broadcast(at::Tensor& tensor, int root, bool async_op,
                                        const BroadcastOptions& options) {
  const ArgumentChecks check = begin(OpName::broadcast);
  check.inRange("root", root);
  check.usable(tensor);
  return impl_->broadcast(tensor, root, async_op, options);
}

TorchComm::WorkPtr TorchComm::all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                                         const AllReduceOptions& options) {
  const ArgumentChecks check = begin(OpName::all_reduce);
  check.usable(tensor);
  check.reducible(op);
  return impl_->all_reduce(tensor, op, async_op, options);
}

TorchComm::WorkPtr TorchComm::reduce(at::Tensor& tensor, int root, const ReduceOp& op,
                                     bool async_op, const ReduceOptions& options) {
  const ArgumentChecks check = begin(OpName::reduce);
  check.inRange("root", root);
  check.usable(tensor);
  check.reducible(op);
  return impl_->reduce(tensor, root, op, async_op, options);
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
  return impl_->all_gather(tensor_list, tensor, async_op, options);
}

TorchComm::WorkPtr TorchComm::all_gather_v(const Tensors& tensor_list, const at::Tensor& tensor,
                                           bool async_op, const AllGatherOptions& options) {
  const ArgumentChecks check = begin(OpName::all_gather_v);
  check.onePerRank(tensor_list, "tensor_list size must equal comm_size for all_gather_v");
  check.usable(tensor);
  check.usable(tensor_list);
  check.sameType(tensor, tensor_list);
  check.require(tensor_list[rank_].numel() == tensor.numel(),
                "Output tensor size must equal input tensor size for all_gather_v");
  return impl_->all_gather_v(tensor_list, tensor, async_op, options);
}

TorchComm::WorkPtr TorchComm::all_gather_single(at::Tensor& output, const at::Tensor& input,
                                                bool async_op,
                                                const AllGatherSingleOptions& options) {
  const ArgumentChecks check = begin(OpName::all_gather_single);
  check.usable(output);
  check.usable(input);
  check.sameType(input, output);
  check.require(output.numel() == input.numel() * size_,
                "Output tensor size must be input_size * comm_size for all_gather_single");
  check.inPlaceOrApart(output, input);
  return impl_->all_gather_single(output, input, async_op, options);
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
  return impl_->reduce_scatter(output, input_list, op, async_op, options);
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
  check.require(input_list[rank_].numel() == output.numel(),
                "Output tensor size must equal input tensor size for reduce_scatter_v");
  return impl_->reduce_scatter_v(output, input_list, op, async_op, options);
}

TorchComm::WorkPtr TorchComm::reduce_scatter_single(at::Tensor& output, const at::Tensor& input,
                                                    const ReduceOp& op, bool async_op,
                                                    const ReduceScatterSingleOptions& options) {
  const ArgumentChecks check = begin(OpName::reduce_scatter_single);
  check.usable(output);
  check.usable(input);
  check.sameType(input, output);
  check.reducible(op);
  check.require(input.numel() == output.numel() * size_,
                "Input tensor size must be output_size * comm_size for reduce_scatter_single");
  check.inPlaceOrApart(input, output);
  return impl_->reduce_scatter_single(output, input, op, async_op, options);
}

TorchComm::WorkPtr TorchComm::all_to_all_single(at::Tensor& output, const at::Tensor& input,
                                                bool async_op,
                                                const AllToAllSingleOptions& options) {
  const ArgumentChecks check = begin(OpName::all_to_all_single);
  check.usable(output);
  check.usable(input);
  check.sameType(input, output);
  check.require(input.numel() == output.numel(),
                "Input and output tensors must have same size for all_to_all_single");
  check.require(input.numel() % size_ == 0,
                "Tensor size must be divisible by comm_size for all_to_all_single");
  check.sameOrApart(output, input);
  return impl_->all_to_all_single(output, input, async_op, options);
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
  return impl_->all_to_all_v_single(output, input, output_split_sizes, input_split_sizes, async_op,
                                    options);
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
  return impl_->all_to_all(output_tensor_list, input_tensor_list, async_op, options);
}

TorchComm::WorkPtr TorchComm::barrier(bool async_op, const BarrierOptions& options) {
  begin(OpName::barrier);
  return impl_->barrier(async_op, options);
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
  return impl_->scatter(output_tensor, input_tensor_list, root, async_op, options);
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
  return impl_->gather(output_tensor_list, input_tensor, root, async_op, options);
}

TorchComm::WorkPtr TorchComm::gather_single(at::Tensor& output, const at::Tensor& input, int root,
                                            bool async_op, const GatherSingleOptions& options) {
  const ArgumentChecks check = begin(OpName::gather_single);
  check.inRange("root", root);
  check.usable(input);
  if (rank_ == root) {
    check.usable(output);
    check.sameType(input, output);
    check.require(output.numel() == input.numel() * size_,
                  "Output tensor size must be input_size * comm_size for gather_single");
    check.inPlaceOrApart(output, input);
  }
  return impl_->gather_single(output, input, root, async_op, options);
}

std::shared_ptr<TorchComm> TorchComm::split(const std::vector<int>& ranks,
                                            const std::string& name) {
  return split(ranks, name, getOptions());
}

std::shared_ptr<TorchComm> TorchComm::split(const std::vector<int>& ranks, const std::string& name,
                                            const CommOptions& options) {
  begin(OpName::split).members(ranks);
  CommOptions childOptions = options;
  childOptions.rank.reset();
  childOptions.size.reset();
  std::string childName = name;
  // Counted on every rank, member of the child or not: names stay agreed.
  const uint64_t number = splits_++;
  if (childName.empty()) childName = std::string(getCommName()) + "/" + std::to_string(number);
  childOptions.name = childName;
  std::shared_ptr<TorchCommBackend> child = impl_->split(ranks, childName, childOptions);
  if (!child) return nullptr;
  std::vector<int> members;
  for (const int r : ranks) members.push_back(ranks_[r]);
  return std::shared_ptr<TorchComm>(new TorchComm(std::move(child), std::move(members)));
}

void TorchComm::setTimeout(std::chrono::milliseconds timeout) {
  if (timeout.count() <= 0) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument, "timeout must be positive");
  }
  impl_->setTimeout(timeout);
}

void BatchSendRecv::send(const at::Tensor& tensor, int dst, int tag) {
  ops.push_back({P2POp::Type::SEND, tensor, dst, tag});
}

void BatchSendRecv::recv(const at::Tensor& tensor, int src, int tag) {
  ops.push_back({P2POp::Type::RECV, tensor, src, tag});
}

c10::intrusive_ptr<TorchWork> BatchSendRecv::issue(bool async_op, const BatchP2POptions& options) {
  return comm_->batch_op_issue(ops, async_op, options);
}

std::shared_ptr<TorchComm> new_comm(const std::string& backend, at::Device device,
                                    const std::string& name, const CommOptions& options) {
  CommOptions made = options;
  if (!name.empty()) made.name = name;
  if (made.name.empty()) made.name = "default";
  if (made.timeout.count() <= 0) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument, "timeout must be positive");
  }
  return std::make_shared<TorchComm>(
      TorchCommFactory::get().create_backend(backend, device, made.name, made));
}

}  // namespace torch::comms
