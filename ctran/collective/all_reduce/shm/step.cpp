#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// One step: every rank publishes its input and reduces all inputs, in rank order.
Task allReduceStep(ShmContext& shm, const Collective& c) {
  return exchangeStep(
      shm, c.blockBytes(), true, kFromAll,
      [&c, &shm](std::byte* slot) { shm.put(slot, c.input, c.blockBytes()); },
      [&c, &shm](const std::byte* const* slots) {
        const std::byte* sources[Arena::kMaxRanks];
        for (int r = 0; r < shm.size; ++r) sources[r] = r == shm.rank ? c.input : slots[r];
        shm.reduce(c, c.output, sources, c.count);
      });
}

}  // namespace

namespace algorithms {

Algorithm allReduceShmStep() {
  return {.name = "step",
          .kinds = {CollectiveKind::AllReduce},
          .run = allReduceStep,
          .micros = stepMicros,
          .whyNot = whyNotInAStep};
}

}  // namespace algorithms

}  // namespace ctran
