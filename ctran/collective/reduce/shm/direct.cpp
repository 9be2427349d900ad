#include "ctran/collective/algorithm.h"
#include "ctran/collective/all_reduce/shm/two_phase.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// Runs as all-reduce, but only the root reads.
Task reduceDirect(ShmContext& shm, const Collective& c) { return reduceDirectly(shm, c, c.root); }

}  // namespace

namespace algorithms {

Algorithm reduceShmDirect() {
  return {.name = "direct",
          .kinds = {CollectiveKind::Reduce},
          .run = reduceDirect,
          .micros = roundsMicros};
}

}  // namespace algorithms

}  // namespace ctran
