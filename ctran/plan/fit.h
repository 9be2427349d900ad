#pragma once

#include <vector>

#include "ctran/plan/simulate.h"

namespace ctran::plan {

/// How long a plan took.
struct Sample {
  Plan plan;
  size_t bytes = 0;  ///< of a block
  int units = 1;     ///< into which it was cut
  double seconds = 0;
};

struct Fit {
  Machine machine;
  std::vector<double> errors;  ///< per sample: what the machine says / what it took - 1
  double median = 0;           ///< of the errors' sizes
};

/// The machine whose times are closest to those measured: latency, overhead and bandwidth of local
/// links, or the costs of shared memory where it has that; bandwidths of copies, reductions and of
/// memory beyond the caches, costs of steps and of calls. Found by moving one after the other, in
/// factors that get smaller, as long as the mean of |log(said / measured)| goes down. `start` says
/// the rest: hosts, cards, whether lanes take turns. Throws Error(InvalidArgument) if there is
/// nothing to be fitted to.
Fit fit(const std::vector<Sample>& samples, const Machine& start);

/// How far a machine is from what was measured.
Fit compare(const std::vector<Sample>& samples, const Machine& machine);

}  // namespace ctran::plan
