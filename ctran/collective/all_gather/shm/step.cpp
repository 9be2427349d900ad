#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// One step: every rank publishes its block and copies all others'.
Task allGatherStep(ShmContext& shm, const Collective& c) {
  return exchangeStep(
      shm, c.largestOutput(), true, kFromAll,
      [&c, &shm](std::byte* slot) { shm.put(slot, c.input, c.blockBytes()); },
      [&c, &shm](int peer, const std::byte* slot) {
        const Block block = c.outputBlock(peer);
        shm.take(block.data, peer == shm.rank ? c.input : slot, block.count * sizeOf(c.type));
      });
}

}  // namespace

namespace algorithms {

Algorithm allGatherShmStep() {
  return {.name = "step",
          .kinds = {CollectiveKind::AllGather, CollectiveKind::AllGatherV},
          .run = allGatherStep,
          .micros = stepMicros,
          .whyNot = whyNotInAStep};
}

}  // namespace algorithms

}  // namespace ctran
