#pragma once

#include <algorithm>
#include <cstddef>

#include "ctran/collective/gpu/hosts_call.h"

namespace ctran {

/// Blocks, one for each rank, in strips: a strip has the same part of every block. Used if the
/// domains are of one size, so that every rank has a rail.
struct Strips {
  /// `room` is the most bytes of a block in a strip.
  Strips(size_t count, size_t element, size_t room)
      : element(element),
        most(std::max<size_t>(1, room / kGrainBytes * kGrainBytes / element)),
        count(count),
        strips((count + most - 1) / most) {}

  const size_t element;
  const size_t most;   ///< the most elements of a block in a strip
  const size_t count;  ///< elements of a block
  const size_t strips;

  size_t countOf(size_t k) const { return std::min(most, count - k * most); }
  /// Returns the part of a block that is in strip k.
  Block part(size_t k, const Block& block) const {
    return {block.data + k * most * element, countOf(k)};
  }

 private:
  static constexpr size_t kGrainBytes = 16;
};

/// Returns the rank at a place of a domain.
inline int rankAt(const GpuHostsCall& call, int domain, int place) {
  return call.domains.ranks(domain)[static_cast<size_t>(place)];
}

}  // namespace ctran
