#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// One step: every rank publishes all its blocks and copies its own from every slot.
Task allToAllStep(ShmContext& shm, const Collective& c) {
  return exchangeStep(
      shm, c.blockBytes() * shm.size, true, kFromAll,
      [&c, &shm](std::byte* slot) {
        for (int r = 0; r < shm.size; ++r) {
          if (r == shm.rank) continue;
          shm.put(slot + r * c.blockBytes(), c.inputBlock(r).data, c.blockBytes());
        }
      },
      [&c, &shm](int peer, const std::byte* slot) {
        const std::byte* from = slot + shm.rank * c.blockBytes();
        if (peer == shm.rank) from = c.inputBlock(peer).data;
        shm.take(c.outputBlock(peer).data, from, c.blockBytes());
      });
}

}  // namespace

namespace algorithms {

Algorithm allToAllShmStep() {
  return {.name = "step",
          .kinds = {CollectiveKind::AllToAll},
          .run = allToAllStep,
          .micros = stepMicros,
          .whyNot = whyNotInAStep};
}

}  // namespace algorithms

}  // namespace ctran
