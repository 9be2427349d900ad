#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"
#include "ctran/collective/shm_reading.h"

namespace ctran {
namespace {

/// Every rank reads all others' blocks out of their memory.
Task allGatherPull(ShmContext& shm, const Collective& c) {
  return exchangeByReading(
      shm, 1, [&c](int) { return std::span(c.input, c.blockBytes()); },
      [&c, &shm] { shm.take(c.outputBlock(shm.rank).data, c.input, c.blockBytes()); },
      [&c, &shm](int peer) {
        const Block block = c.outputBlock(peer);
        return Reading{shm.lentBy(peer, 0), block.data, block.count * sizeOf(c.type)};
      });
}

/// A rank writes what it reads through the caches, where so much of all ranks does not stay; what
/// goes through the rings is then written past them.
double allGatherPullMicros(const AlgorithmQuery& q) {
  constexpr double kStays = 32 << 20;
  const double whole = static_cast<double>(q.bytes) * q.size;
  const double moved = whole * (q.size - 1) / q.size + std::max(0.0, whole - kStays / q.size);
  return 2 * startMicros(q.size) + lookIntoAllMicros(q.size) +
         moved * kReadProcess * (1 + q.size * q.size / 400.0);
}

}  // namespace

namespace algorithms {

Algorithm allGatherShmPull() {
  return {.name = "pull",
          .kinds = {CollectiveKind::AllGather, CollectiveKind::AllGatherV},
          .run = allGatherPull,
          .micros = allGatherPullMicros,
          .readsPeers = true};
}

}  // namespace algorithms

}  // namespace ctran
