#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace ctran {

/// Splits `count` elements into parts, one for each rank: part r is [begin(r), begin(r + 1)). Parts
/// differ by at most one cache line's worth of elements.
struct Partition {
  size_t count;
  int parts;
  size_t grain;  ///< in elements; every boundary but the last is a multiple of it

  Partition(size_t count, int parts, size_t elementBytes)
      : count(count), parts(parts), grain(std::max<size_t>(1, 64 / elementBytes)) {}

  size_t begin(int part) const {
    const size_t grains = (count + grain - 1) / grain;
    return std::min(count, grains * static_cast<size_t>(part) / parts * grain);
  }
  size_t size(int part) const { return begin(part + 1) - begin(part); }
};

/// Copies a block that may be empty (and null) or already in place.
inline void copyBlock(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace ctran
