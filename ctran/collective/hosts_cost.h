#pragma once

#include "ctran/collective/algorithm.h"

namespace ctran {

/// The cost of the steps of algorithms that use shared memory inside hosts and messages between
/// them, by the cost models of both.
class GroupCost {
 public:
  /// The query has a map of hosts.
  explicit GroupCost(const AlgorithmQuery& query);

  const double bytes;  ///< bytes that a rank contributes
  const double hosts;
  const double rails;
  const double ranks;  ///< ranks of the largest host

  double all() const { return hosts * ranks; }
  /// Returns the number of ranks of other hosts.
  double away() const { return all() - ranks; }

  /// Return the microseconds of the cheapest algorithm among the ranks of a host, and among one
  /// rank of each host; `sharing` of these share the network of a host.
  double inside(CollectiveKind kind, double bytes) const;
  double between(CollectiveKind kind, double bytes, double sharing) const;
  /// Returns the microseconds of sending or receiving `bytes` in all, one message to or from each
  /// rank of the other hosts.
  double straight(CollectiveKind kind, double bytes, int sharing) const;

 private:
  const bool partialSums_;
};

}  // namespace ctran
