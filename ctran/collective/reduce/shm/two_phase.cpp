#include "ctran/collective/all_reduce/shm/two_phase.h"
#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// Runs as all-reduce, but only the root collects the parts: all ranks share the arithmetic.
Task reduceTwoPhase(ShmContext& shm, const Collective& c) {
  return reduceInTwoPhases(shm, c, c.root);
}

}  // namespace

namespace algorithms {

Algorithm reduceShmTwoPhase() {
  return {.name = "two_phase",
          .kinds = {CollectiveKind::Reduce},
          .run = reduceTwoPhase,
          .micros = twoPhaseMicros};
}

}  // namespace algorithms

}  // namespace ctran
