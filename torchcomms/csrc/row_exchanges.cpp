// The dynamic forms of all-to-all: their arguments as rows to be exchanged.
#include <comms/torchcomms/TorchComm.hpp>

#include "torchcomms/csrc/argument_checks.hpp"

namespace torch::comms {

namespace {

/// Of input and outputs; they have rows of dimension 0, or of `hiddenDim` elements.
void checkData(const ArgumentChecks& check, RowExchangeCall& call, int64_t hiddenDim = 0) {
  const std::string where = " for " + std::string(toString(call.op));
  check.usable(call.input);
  check.usable(call.output);
  check.sameType(call.input, call.output);
  if (hiddenDim == 0) {
    check.require(call.input.dim() > 0 && call.output[0].dim() > 0,
                  "Tensors must have at least one dimension" + where);
    check.require(rowSize(call.input) == rowSize(call.output[0]),
                  "Rows of input and output must have same size" + where);
    hiddenDim = rowSize(call.input);
  } else {
    check.require(hiddenDim > 0, "hidden_dim must be positive" + where);
    check.require(call.input.numel() % hiddenDim == 0,
                  "Tensor size must be divisible by hidden_dim" + where);
  }
  call.rowElements = hiddenDim;
  for (const at::Tensor& output : call.output) check.apart(output, call.input);
}

}  // namespace

TorchComm::WorkPtr TorchComm::all_to_all_v_dynamic(at::Tensor& output, const at::Tensor& input,
                                                   at::Tensor& output_split_sizes,
                                                   const at::Tensor& input_split_sizes,
                                                   bool async_op,
                                                   const AllToAllvSingleOptions& options) {
  RowExchangeCall call{.op = OpName::all_to_all_v_dynamic, .input = input, .output = {output}};
  const ArgumentChecks check = begin(call.op);
  checkData(check, call);
  check.numbers(call.received = output_split_sizes, size_, "output_split_sizes");
  check.numbers(call.sendCounts = input_split_sizes, size_, "input_split_sizes");
  return exchangeRows(call, async_op, options);
}

TorchComm::WorkPtr TorchComm::device_alltoallv_single(at::Tensor& output, const at::Tensor& input,
                                                      const at::Tensor& output_split_sizes,
                                                      const at::Tensor& input_split_sizes,
                                                      bool async_op,
                                                      const AllToAllvSingleOptions& options) {
  RowExchangeCall call{.op = OpName::device_alltoallv_single, .input = input, .output = {output}};
  const ArgumentChecks check = begin(call.op);
  checkData(check, call);
  check.numbers(call.expected = output_split_sizes, size_, "output_split_sizes");
  check.numbers(call.sendCounts = input_split_sizes, size_, "input_split_sizes");
  return exchangeRows(call, async_op, options);
}

TorchComm::WorkPtr TorchComm::alltoallv_dynamic_dispatch(
    const Tensors& output_tensor_list, at::Tensor& output_chunk_sizes_per_rank,
    const at::Tensor& input_tensor, const at::Tensor& input_chunk_sizes,
    const at::Tensor& input_chunk_indices, const at::Tensor& input_chunk_count_per_rank,
    int64_t hidden_dim, bool async_op, const AllToAllvSingleOptions& options) {
  RowExchangeCall call{.op = OpName::alltoallv_dynamic_dispatch,
                       .input = input_tensor,
                       .output = output_tensor_list};
  const ArgumentChecks check = begin(call.op);
  check.onePerRank(output_tensor_list,
                   "output_tensor_list size must equal comm_size for alltoallv_dynamic_dispatch");
  check.require(hidden_dim > 0, "hidden_dim must be positive for alltoallv_dynamic_dispatch");
  checkData(check, call, hidden_dim);
  check.numbers(call.chunkRows = input_chunk_sizes, -1, "input_chunk_sizes");
  check.numbers(call.sendIndices = input_chunk_indices, -1, "input_chunk_indices");
  check.numbers(call.sendCounts = input_chunk_count_per_rank, size_, "input_chunk_count_per_rank");
  check.numbers(call.receivedChunks = output_chunk_sizes_per_rank,
                size_ * input_chunk_sizes.numel(), "output_chunk_sizes_per_rank");
  return exchangeRows(call, async_op, options);
}

TorchComm::WorkPtr TorchComm::alltoallv_dynamic_combine(
    at::Tensor& output_tensor, const at::Tensor& input_tensor, const at::Tensor& input_chunk_sizes,
    const at::Tensor& input_chunk_indices, const at::Tensor& input_chunk_count_per_rank,
    int64_t hidden_dim, bool async_op, const AllToAllvSingleOptions& options) {
  RowExchangeCall call{
      .op = OpName::alltoallv_dynamic_combine, .input = input_tensor, .output = {output_tensor}};
  const ArgumentChecks check = begin(call.op);
  check.require(hidden_dim > 0, "hidden_dim must be positive for alltoallv_dynamic_combine");
  checkData(check, call, hidden_dim);
  check.numbers(call.chunkRows = input_chunk_sizes, -1, "input_chunk_sizes");
  check.numbers(call.sendIndices = input_chunk_indices, -1, "input_chunk_indices");
  check.numbers(call.sendCounts = input_chunk_count_per_rank, size_, "input_chunk_count_per_rank");
  return exchangeRows(call, async_op, options);
}

TorchComm::WorkPtr TorchComm::all_to_all_v_dedup(at::Tensor& output, const at::Tensor& input,
                                                 at::Tensor& output_split_sizes,
                                                 const at::Tensor& input_indices,
                                                 const at::Tensor& input_split_sizes, bool async_op,
                                                 const AllToAllvSingleOptions& options) {
  RowExchangeCall call{.op = OpName::all_to_all_v_dedup, .input = input, .output = {output}};
  const ArgumentChecks check = begin(call.op);
  checkData(check, call);
  check.numbers(call.received = output_split_sizes, size_, "output_split_sizes");
  check.numbers(call.sendIndices = input_indices, -1, "input_indices");
  check.numbers(call.sendCounts = input_split_sizes, size_, "input_split_sizes");
  return exchangeRows(call, async_op, options);
}

TorchComm::WorkPtr TorchComm::all_to_all_v_dedup_combine(
    at::Tensor& output, const at::Tensor& input, const at::Tensor& weights,
    const at::Tensor& input_split_sizes, const at::Tensor& output_indices,
    const at::Tensor& output_split_sizes, bool async_op, const AllToAllvSingleOptions& options) {
  RowExchangeCall call{.op = OpName::all_to_all_v_dedup_combine,
                       .input = input,
                       .output = {output},
                       .weights = weights};
  const ArgumentChecks check = begin(call.op);
  checkData(check, call);
  check.numbers(call.received = input_split_sizes, size_, "input_split_sizes");
  check.numbers(call.sendIndices = output_indices, -1, "output_indices");
  check.numbers(call.sendCounts = output_split_sizes, size_, "output_split_sizes");
  if (weights.defined()) {
    check.usable(weights);
    check.require(weights.scalar_type() == at::kFloat && weights.numel() == input.size(0),
                  "weights must be a float32 tensor with one element per row of input for "
                  "all_to_all_v_dedup_combine");
  }
  return exchangeRows(call, async_op, options);
}

}  // namespace torch::comms
