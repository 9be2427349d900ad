#pragma once

#include <cstring>
#include <utility>
#include <vector>

#include "ctran/collective/collective.h"

namespace ctran {

/// Several blocks sent or received as one message. If they lie side by side in memory, the message
/// uses that memory; otherwise it uses a copy. The object has to live until the message has ended.
class BlockRun {
 public:
  BlockRun(std::vector<Block> blocks, size_t element)
      : blocks_(std::move(blocks)), element_(element) {
    const std::byte* end = nullptr;
    for (const Block& block : blocks_) {
      if (block.count == 0) continue;
      if (bytes_ == 0) begin_ = block.data;
      together_ &= bytes_ == 0 || block.data == end;
      bytes_ += block.count * element;
      end = block.data + block.count * element;
    }
  }

  size_t bytes() const { return bytes_; }

  /// Returns the blocks one after another.
  const std::byte* packed() {
    if (together_) return begin_;
    copy_.resize(bytes_);
    move([](std::byte* block, std::byte* copy, size_t n) { std::memcpy(copy, block, n); });
    return copy_.data();
  }
  /// Returns where the blocks may be received. Call `unpack` when they have been.
  std::byte* landing() {
    if (together_) return begin_;
    copy_.resize(bytes_);
    return copy_.data();
  }
  void unpack() {
    if (together_) return;
    move([](std::byte* block, std::byte* copy, size_t n) { std::memcpy(block, copy, n); });
  }

 private:
  template <class Move>
  void move(Move move) {
    std::byte* at = copy_.data();
    for (const Block& block : blocks_) {
      const size_t n = block.count * element_;
      if (n > 0) move(block.data, at, n);
      at += n;
    }
  }

  std::vector<Block> blocks_;
  size_t element_;
  size_t bytes_ = 0;
  std::byte* begin_ = nullptr;
  bool together_ = true;
  std::vector<std::byte> copy_;
};

}  // namespace ctran
