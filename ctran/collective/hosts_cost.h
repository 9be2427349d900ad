#pragma once

#include "ctran/collective/algorithm.h"

namespace ctran {

/// The steps of algorithms that use shared memory inside hosts and messages between them, by the
/// cost models of both.
class GroupCost {
 public:
  /// The query has a map of hosts.
  explicit GroupCost(const AlgorithmQuery& query);

  const double bytes;  ///< that a rank contributes
  const double hosts;
  const double rails;
  const double ranks;  ///< of the largest host

  double all() const { return hosts * ranks; }
  /// Ranks of other hosts.
  double away() const { return all() - ranks; }

  /// The cheapest algorithm among the ranks of a host, and among one rank of each host, of whom so
  /// many share the network.
  double inside(CollectiveKind kind, double bytes) const;
  double between(CollectiveKind kind, double bytes, double sharing) const;
  /// So many bytes to, or from, each rank of the other hosts.
  double straight(CollectiveKind kind, double bytes, int sharing) const;

 private:
  const bool partialSums_;
};

}  // namespace ctran
