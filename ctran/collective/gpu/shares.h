#pragma once

#include <cstddef>
#include <vector>

#include "ctran/collective/gpu/hosts_call.h"

namespace ctran {

/// A tensor in pieces, each of which has one share for each rail of several domains. A rank without
/// a rail has an empty one.
struct Shares {
  Shares(const GpuHostsCall& call, size_t count, size_t element);

  size_t pieces;

  /// Of piece k: a block for each rank of this domain.
  std::vector<Block> blocks(size_t k, const std::byte* data) const;
  /// The one of this rank.
  Block own(size_t k, const std::byte* data) const;
  /// The collective `c` of what each rail has of piece k, as large on every rail: what the last
  /// shares lack is there, and nobody looks at it. Its buffers are the caller's to name.
  Collective onRail(const Collective& c, size_t k) const;
  /// Everybody gets the shares of all ranks of the domain, in place.
  Collective gather(size_t k, const Collective& c) const;

 private:
  size_t countOf(size_t k) const;
  size_t shareOf(size_t k) const;

  const GpuHostsCall& call_;
  const size_t count_, element_, piece_;  ///< in elements, but for one
};

}  // namespace ctran
