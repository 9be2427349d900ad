#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ctran/plan/topology.h"

namespace ctran::plan {

/// A rational number, in lowest terms.
struct Fraction {
  int64_t over = 0, under = 1;

  double value() const { return static_cast<double>(over) / static_cast<double>(under); }
  bool operator==(const Fraction&) const = default;
};
Fraction fraction(int64_t over, int64_t under);

/// A way for a part of what one rank has to all other ranks.
struct Tree {
  int root = 0;
  int64_t share = 1;                       ///< how many of the `Forest::shares`
  std::vector<std::pair<int, int>> edges;  ///< rank to rank, from the root on
};

/// Trees over which all ranks send what they have to all others, at the same time.
struct Forest {
  Fraction bound;  ///< MB/s at which every rank can send, at most: no set of nodes lets more out
  Fraction rate;   ///< at which it does, over these trees
  int64_t shares = 1;  ///< into which each rank divides its data
  std::vector<Tree> trees;
  Routes routes;  ///< of the edges of the trees, through switches
};

/// The most that each rank can send to all others, in MB/s, when all do:
///
///     min over sets S of nodes that lack a rank: capacity out of S / ranks in S
///
/// Found by maximal flows, in Newton's manner: a set that lets less out than is tried gives the
/// next value to be tried (Zhao et al., ForestColl, arXiv 2402.06787, who search by halves).
Fraction cutBound(const Topology& topology);

/// Trees that reach the bound, in polynomial time and with whole numbers alone: choose how many
/// trees a link carries; split switches off, so that as much still flows among ranks (Bang-Jensen,
/// Frank, Jackson 1995); let trees grow edge by edge wherever what is left suffices for the others
/// (Berczi, Frank 2010).
///
/// Where more than `mostShares` shares per rank were needed, the best with that many or fewer is
/// taken, which may stay below the bound. Throws Error(InvalidArgument) if some rank cannot reach
/// all others, or if more can enter a node than leave it.
Forest packTrees(const Topology& topology, int mostShares = 64);

}  // namespace ctran::plan
