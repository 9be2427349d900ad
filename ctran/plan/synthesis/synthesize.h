#pragma once

#include "ctran/plan/plan.h"
#include "ctran/plan/synthesis/forest.h"

namespace ctran::plan {

/// A plan made for a topology.
struct Synthesis {
  Plan plan;
  Routes routes;         ///< that its data has to take
  Fraction bound, rate;  ///< of each phase, in MB/s per rank; see `Forest`
  int phases = 1;        ///< an all-reduce has two: reduce-scatter and all-gather

  /// Seconds that the links alone take for so many bytes per rank (of an all-reduce: in all).
  double boundFor(double bytes) const { return secondsAt(bound, bytes); }
  double secondsFor(double bytes) const { return secondsAt(rate, bytes); }

 private:
  double secondsAt(const Fraction& rate, double bytes) const {
    return phases * bytes / (phases == 2 ? plan.ranks : 1) / (rate.value() * 1e6);
  }
};

/// The all-gather, reduce-scatter or all-reduce whose throughput no other can exceed on that
/// topology (of an all-reduce: no other that scatters and gathers). `depth` units can be on their
/// way through the trees at a time. Throws Error(InvalidArgument) as `packTrees` does.
Synthesis synthesize(const Topology& topology, CollectiveKind kind, int mostShares = 64,
                     int depth = 2);

/// The bytes of each link for a byte per block of the plan, divided by its capacity, at most:
/// seconds per byte, however well all is timed. Data takes `routes`, by their shares, or the
/// shortest way.
double linkSeconds(const Plan& plan, const Topology& topology, const Routes& routes = {});

}  // namespace ctran::plan
