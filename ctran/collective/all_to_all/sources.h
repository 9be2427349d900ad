#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/collective/collective.h"

namespace ctran {

/// The blocks to send: those of the input, or a copy where the output uses the same memory, because
/// data that arrives would overwrite data that has not left yet.
class Sources {
 public:
  Sources(const Collective& c, int rank, int size) {
    const size_t element = sizeOf(c.type);
    size_t bytes = 0;
    for (int r = 0; r < size; ++r) {
      if (r != rank && inPlace(c, r)) bytes += c.inputBlock(r).count * element;
    }
    copy_.resize(bytes);
    std::byte* at = copy_.data();
    for (int r = 0; r < size; ++r) {
      const Block block = c.inputBlock(r);
      blocks_.push_back(block);
      if (r == rank || !inPlace(c, r) || block.count == 0) continue;
      std::memcpy(at, block.data, block.count * element);
      blocks_.back().data = at;
      at += block.count * element;
    }
  }
  const Block& operator[](int rank) const { return blocks_[rank]; }

 private:
  static bool inPlace(const Collective& c, int rank) {
    return c.inputBlock(rank).data == c.outputBlock(rank).data;
  }
  std::vector<std::byte> copy_;
  std::vector<Block> blocks_;
};

[[noreturn]] inline void throwCounts(const Collective& c, int peer, int rank, uint64_t sent) {
  throw Error(ErrorKind::Mismatch,
              "all_to_all_v: rank " + std::to_string(peer) + " sends " + std::to_string(sent) +
                  " elements to rank " + std::to_string(rank) + ", which expects " +
                  std::to_string(c.outputs[peer].count),
              {peer, rank}, c.describe(),
              "input_split_sizes[j] on rank i must equal output_split_sizes[i] on rank j");
}

}  // namespace ctran
