#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"
#include "ctran/collective/shm_reading.h"

namespace ctran {
namespace {

/// Every rank reads its block of all others out of their memory, piece by piece, and reduces.
Task reduceScatterPull(ShmContext& shm, const Collective& c) {
  return exchangeByReadingAll(
      shm, shm.size,
      [&c](int r) {
        const Block block = c.inputBlock(r);
        return std::span<const std::byte>(block.data, block.count * sizeOf(c.type));
      },
      [&c, &shm] {
        const std::byte* from[Arena::kMaxRanks];
        for (int r = 0; r < shm.size; ++r) from[r] = shm.lentBy(r, shm.rank);
        return shm.reduceByReading(c, c.output, from, c.inputBlock(shm.rank).count);
      });
}

}  // namespace

namespace algorithms {

Algorithm reduceScatterShmPull() {
  return {.name = "pull",
          .kinds = {CollectiveKind::ReduceScatter, CollectiveKind::ReduceScatterV},
          .run = reduceScatterPull,
          .micros = pullMicros,
          .whyNot = whyNoAddresses,
          .readsPeers = true};
}

}  // namespace algorithms

}  // namespace ctran
