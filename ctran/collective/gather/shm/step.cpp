#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// One step: all others publish their blocks, the root copies all.
Task gatherStep(ShmContext& shm, const Collective& c) {
  return exchangeStep(
      shm, c.blockBytes(), true, shm.rank == c.root ? kFromAll : kFromNobody,
      [&c, &shm](std::byte* slot) {
        if (shm.rank != c.root) shm.put(slot, c.input, c.blockBytes());
      },
      [&c, &shm](int peer, const std::byte* slot) {
        const std::byte* from = peer == shm.rank ? c.input : slot;
        shm.take(c.outputBlock(peer).data, from, c.blockBytes());
      });
}

}  // namespace

namespace algorithms {

Algorithm gatherShmStep() {
  return {.name = "step",
          .kinds = {CollectiveKind::Gather},
          .run = gatherStep,
          .micros = stepMicros,
          .whyNot = whyNotInAStep};
}

}  // namespace algorithms

}  // namespace ctran
