#pragma once

#include <algorithm>
#include <cstddef>

#include "ctran/collective/gpu/hosts_call.h"

namespace ctran {

/// Blocks, one for each rank, in strips: of a strip there is the same part of every block. Of even
/// domains, where every rank has a rail.
struct Strips {
  /// `room`: bytes of a block that a strip may have.
  Strips(size_t count, size_t element, size_t room)
      : element(element),
        most(std::max<size_t>(1, room / kGrainBytes * kGrainBytes / element)),
        count(count),
        strips((count + most - 1) / most) {}

  const size_t element;
  const size_t most;   ///< elements of a block in a strip
  const size_t count;  ///< of a block
  const size_t strips;

  size_t countOf(size_t k) const { return std::min(most, count - k * most); }
  /// The part of a block that is in strip k.
  Block part(size_t k, const Block& block) const {
    return {block.data + k * most * element, countOf(k)};
  }

 private:
  static constexpr size_t kGrainBytes = 16;
};

/// The rank at a place of a domain.
inline int rankAt(const GpuHostsCall& call, int domain, int place) {
  return call.domains.ranks(domain)[static_cast<size_t>(place)];
}

}  // namespace ctran
