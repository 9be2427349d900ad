#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "ctran/collective/collective.h"
#include "torchcomms/csrc/argument_checks.hpp"
#include "torchcomms/csrc/data_type.hpp"

// Tensors as the engine sees them.

namespace torch::comms {

inline const std::byte* readable(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}

inline std::byte* writable(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

inline size_t countOf(const at::Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }

inline std::vector<ctran::Block> readableBlocks(std::span<const at::Tensor> tensors) {
  std::vector<ctran::Block> blocks;
  blocks.reserve(tensors.size());
  // A Block serves both directions; blocks of an input are not written.
  for (const at::Tensor& t : tensors) {
    blocks.push_back({const_cast<std::byte*>(readable(t)), countOf(t)});
  }
  return blocks;
}

inline std::vector<ctran::Block> writableBlocks(std::span<const at::Tensor> tensors) {
  std::vector<ctran::Block> blocks;
  blocks.reserve(tensors.size());
  for (const at::Tensor& t : tensors) blocks.push_back({writable(t), countOf(t)});
  return blocks;
}

/// Returns consecutive blocks of `rows[r]` rows each.
inline std::vector<ctran::Block> rowBlocks(std::byte* start, const at::Tensor& tensor,
                                           std::span<const uint64_t> rows) {
  const size_t row = static_cast<size_t>(rowSize(tensor));
  std::vector<ctran::Block> blocks;
  blocks.reserve(rows.size());
  for (const uint64_t r : rows) {
    const size_t count = static_cast<size_t>(r) * row;
    blocks.push_back({start, count});
    start += count * tensor.element_size();
  }
  return blocks;
}

inline ctran::Collective movement(ctran::CollectiveKind kind, const at::Tensor& tensor,
                                  size_t count) {
  ctran::Collective c;
  c.kind = kind;
  c.type = movedType(tensor);
  c.count = count;
  return c;
}

}  // namespace torch::comms
