#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// One step: every rank publishes, the root reduces all inputs in rank order.
Task reduceStep(ShmContext& shm, const Collective& c) {
  return exchangeStep(
      shm, c.blockBytes(), true, shm.rank == c.root ? kFromAll : kFromNobody,
      [&c, &shm](std::byte* slot) { shm.put(slot, c.input, c.blockBytes()); },
      [&c, &shm](const std::byte* const* slots) { shm.reduce(c, c.output, slots, c.count); });
}

}  // namespace

namespace algorithms {

Algorithm reduceShmStep() {
  return {.name = "step",
          .kinds = {CollectiveKind::Reduce},
          .run = reduceStep,
          .micros = stepMicros,
          .whyNot = whyNotInAStep};
}

}  // namespace algorithms

}  // namespace ctran
