#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

size_t allBytes(const Collective& c, int size) {
  size_t count = 0;
  for (int r = 0; r < size; ++r) count += c.inputBlock(r).count;
  return count * sizeOf(c.type);
}

/// One step: every rank publishes all its blocks, one after another, and reduces its own block from
/// all slots in rank order.
Task reduceScatterStep(ShmContext& shm, const Collective& c) {
  return exchangeStep(
      shm, allBytes(c, shm.size), true, kFromAll,
      [&c, &shm](std::byte* slot) {
        for (int r = 0; r < shm.size; ++r) {
          const Block block = c.inputBlock(r);
          if (r != shm.rank) shm.put(slot, block.data, block.count * sizeOf(c.type));
          slot += block.count * sizeOf(c.type);
        }
      },
      [&c, &shm](const std::byte* const* slots) {
        size_t offset = 0;
        for (int r = 0; r < shm.rank; ++r) offset += c.inputBlock(r).count * sizeOf(c.type);
        const std::byte* sources[Arena::kMaxRanks];
        for (int r = 0; r < shm.size; ++r) sources[r] = slots[r] + offset;
        sources[shm.rank] = c.inputBlock(shm.rank).data;
        shm.reduce(c, c.output, sources, c.inputBlock(shm.rank).count);
      });
}

}  // namespace

namespace algorithms {

Algorithm reduceScatterShmStep() {
  return {.name = "step",
          .kinds = {CollectiveKind::ReduceScatter, CollectiveKind::ReduceScatterV},
          .run = reduceScatterStep,
          .micros = stepMicros,
          .whyNot = whyNotInAStep};
}

}  // namespace algorithms

}  // namespace ctran
