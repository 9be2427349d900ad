#include <algorithm>

#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// One step: all others publish, the root reduces all inputs in rank order.
Task reduceStep(ShmContext& shm, const Collective& c) {
  return exchangeStep(
      shm, c.blockBytes(), true, shm.rank == c.root ? kFromAll : kFromNobody,
      [&c, &shm](std::byte* slot) {
        if (shm.rank != c.root) shm.put(slot, c.input, c.blockBytes());
      },
      [&c, &shm](const std::byte* const* slots) {
        const std::byte* sources[Arena::kMaxRanks];
        std::copy_n(slots, shm.size, sources);
        sources[shm.rank] = c.input;
        shm.reduce(c, c.output, sources, c.count);
      });
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
