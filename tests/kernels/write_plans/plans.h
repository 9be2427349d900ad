#pragma once

#include <vector>

#include "ctran/plan/library.h"
#include "ctran/plan/synthesis/synthesize.h"
#include "ctran/plan/trim.h"

namespace ctran::plan::testing {

/// Every plan of the library, as GPUs run it, over 4 ranks on two hosts; some with several lanes
/// and chunks; and one that was made for a topology.
inline std::vector<Plan> plansForKernels() {
  std::vector<Plan> plans;
  for (const BuiltIn& builtIn : library()) {
    plans.push_back(withoutIdleCredits(makePlan(builtIn.name, {4, 0, 1, 1, 2})));
  }
  plans.push_back(makePlan("all_reduce.ring", {3, 0, 2, 2}));
  plans.push_back(makePlan("all_reduce.halving_doubling", {3}));
  plans.push_back(makePlan("broadcast.chain", {3, 1, 2, 2}));
  plans.push_back(synthesize(makeTopology("pcie:4"), CollectiveKind::AllReduce, 4).plan);
  return plans;
}

}  // namespace ctran::plan::testing
