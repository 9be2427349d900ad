#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// One step: the root publishes all blocks, every rank copies its own.
Task scatterStep(ShmContext& shm, const Collective& c) {
  const bool isRoot = shm.rank == c.root;
  if (isRoot) copyBlock(c.output, c.inputBlock(shm.rank).data, c.blockBytes());
  return exchangeStep(
      shm, c.blockBytes() * shm.size, isRoot, isRoot ? kFromNobody : c.root,
      [&c, &shm](std::byte* slot) {
        for (int r = 0; r < shm.size; ++r) {
          if (r == c.root) continue;
          shm.put(slot + r * c.blockBytes(), c.inputBlock(r).data, c.blockBytes());
        }
      },
      [&c, &shm](int, const std::byte* slot) {
        shm.take(c.output, slot + shm.rank * c.blockBytes(), c.blockBytes());
      });
}

}  // namespace

namespace algorithms {

Algorithm scatterShmStep() {
  return {.name = "step",
          .kinds = {CollectiveKind::Scatter},
          .run = scatterStep,
          .micros = stepMicros,
          .whyNot = whyNotInAStep};
}

}  // namespace algorithms

}  // namespace ctran
