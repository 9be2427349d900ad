#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// One step: the root publishes, all others copy.
Task broadcastStep(ShmContext& shm, const Collective& c) {
  const bool isRoot = shm.rank == c.root;
  return exchangeStep(
      shm, c.blockBytes(), isRoot, isRoot ? kFromNobody : c.root,
      [&c, &shm](std::byte* slot) { shm.put(slot, c.output, c.blockBytes()); },
      [&c, &shm](int, const std::byte* slot) { shm.take(c.output, slot, c.blockBytes()); });
}

}  // namespace

namespace algorithms {

Algorithm broadcastShmStep() {
  return {.name = "step",
          .kinds = {CollectiveKind::Broadcast},
          .run = broadcastStep,
          .micros = stepMicros,
          .whyNot = whyNotInAStep};
}

}  // namespace algorithms

}  // namespace ctran
