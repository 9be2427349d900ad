#include "torchcomms/csrc/backends/ctran/rows.hpp"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <memory>
#include <utility>

#include "ctran/collective/row_exchange.h"
#include "torchcomms/csrc/backends/ctran/blocks.hpp"

namespace torch::comms {

ctran::Collective collectiveOf(const RowExchangeCall& call) {
  using Kind = ctran::CollectiveKind;
  ctran::Collective c = movement(call.isCombine() ? Kind::AllToAllVCombine : Kind::AllToAllVDynamic,
                                 call.input, static_cast<size_t>(call.rowElements));
  const auto rowsOf = [&](const at::Tensor& tensor) {
    if (call.rowElements == 0) return static_cast<size_t>(tensor.size(0));
    return countOf(tensor) / static_cast<size_t>(call.rowElements);
  };
  const auto numbers = [](const at::Tensor& tensor) -> int64_t* {
    return tensor.defined() ? reinterpret_cast<int64_t*>(writable(tensor)) : nullptr;
  };
  auto rows = std::make_shared<ctran::RowExchange>();
  c.input = readable(call.input);
  rows->inputRows = rowsOf(call.input);
  if (call.output.size() == 1) {
    c.output = writable(call.output[0]);
    rows->outputRows = rowsOf(call.output[0]);
  } else {
    c.outputs = writableBlocks(call.output);
  }
  rows->sendCounts = numbers(call.sendCounts);
  rows->sendIndices = numbers(call.sendIndices);
  rows->indices = call.sendIndices.defined() ? countOf(call.sendIndices) : 0;
  rows->chunkRows = numbers(call.chunkRows);
  rows->chunks = call.chunkRows.defined() ? countOf(call.chunkRows) : 0;
  rows->received = numbers(call.received);
  rows->expected = numbers(call.expected);
  rows->receivedChunks = numbers(call.receivedChunks);
  rows->weights = call.weights.defined() ? call.weights.const_data_ptr<float>() : nullptr;
  rows->dedup = call.sendsOnce();
  c.rows = std::move(rows);
  return c;
}

bool HostRows::areFor(const RowExchangeCall& call) {
  return call.sendIndices.defined() || call.chunkRows.defined() || call.isCombine();
}

HostRows::HostRows(const RowExchangeCall& call) : onDevice_(call), onHost_(call) {
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  const auto bring = [](at::Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  };
  bring(onHost_.input);
  // Outputs too: what is behind the rows that come is not touched.
  for (at::Tensor& output : onHost_.output) bring(output);
  for (at::Tensor* numbers :
       {&onHost_.sendCounts, &onHost_.sendIndices, &onHost_.chunkRows, &onHost_.received,
        &onHost_.expected, &onHost_.receivedChunks, &onHost_.weights}) {
    bring(*numbers);
  }
}

void HostRows::bringBack() const {
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  const auto restore = [](const at::Tensor& to, const at::Tensor& from) {
    if (to.defined()) to.copy_(from);
  };
  for (size_t i = 0; i < onDevice_.output.size(); ++i) {
    restore(onDevice_.output[i], onHost_.output[i]);
  }
  if (!onDevice_.isCombine()) restore(onDevice_.received, onHost_.received);
  restore(onDevice_.receivedChunks, onHost_.receivedChunks);
}

}  // namespace torch::comms
