#pragma once

#include <cstddef>
#include <vector>

#include "ctran/collective/gpu/hosts_call.h"

namespace ctran {

/// A tensor in pieces, each of which has one share for each rail of several domains. A rank without
/// a rail has an empty share.
struct Shares {
  Shares(const GpuHostsCall& call, size_t count, size_t element);

  size_t pieces;

  /// Returns a block of piece k for each rank of this domain.
  std::vector<Block> blocks(size_t k, const std::byte* data) const;
  /// Returns this rank's block of piece k.
  Block own(size_t k, const std::byte* data) const;
  /// Returns the collective `c` of each rail's share of piece k. The share is as large on every
  /// rail: the memory that the last shares lack exists, and is not used. The caller sets the
  /// buffers.
  Collective onRail(const Collective& c, size_t k) const;
  /// Returns the collective in which every rank gets the shares of all ranks of the domain, in
  /// place.
  Collective gather(size_t k, const Collective& c) const;

 private:
  size_t countOf(size_t k) const;
  size_t shareOf(size_t k) const;

  const GpuHostsCall& call_;
  const size_t count_, element_, piece_;  ///< in elements, except for one
};

}  // namespace ctran
