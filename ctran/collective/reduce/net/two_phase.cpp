#include "ctran/collective/all_reduce/net/two_phase.h"
#include "ctran/collective/algorithm.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {
namespace {

/// Runs as all-reduce, but only the root collects the parts: all ranks share the arithmetic, and no
/// rank is sent more than twice the data.
Task reduceTwoPhaseOverNet(NetContext& net, const Collective& c) {
  return reduceInTwoPhases(net, c, c.root);
}

}  // namespace

namespace algorithms {

Algorithm reduceNetTwoPhase() {
  return {.name = "two_phase",
          .kinds = {CollectiveKind::Reduce},
          .run = reduceTwoPhaseOverNet,
          .micros = twoStepsMicros};
}

}  // namespace algorithms

}  // namespace ctran
