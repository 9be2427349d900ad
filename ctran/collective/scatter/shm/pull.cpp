#include <span>

#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_reading.h"

namespace ctran {
namespace {

/// Every rank reads its block out of the root's memory, all at the same time; the root, which would
/// have copied all of them, copies its own.
Task scatterPull(ShmContext& shm, const Collective& c) {
  const bool isRoot = shm.rank == c.root;
  shm.beginRounds(1, 64);  // nothing goes there, but it counts who has read
  co_await shm.slotFree();
  if (isRoot) {
    shm.lend(shm.size, [&c](int r) { return std::span(c.inputBlock(r).data, c.blockBytes()); });
    shm.take(c.output, c.inputBlock(shm.rank).data, c.blockBytes());
  } else {
    shm.publishSlot();
    co_await shm.arrived(c.root);
    const std::byte* block = shm.lentBy(c.root, shm.rank);
    if (!shm.read(c.root, {block, c.output, c.blockBytes()})) {
      co_await shm.neverFilledBy(c.root);
    }
  }
  shm.endRounds();
  if (isRoot) co_await shm.allDrained(0);
  shm.throwIfFailed();
}

double scatterPullMicros(const AlgorithmQuery& q) {
  const double block = static_cast<double>(q.bytes) / q.size;
  // All look into one process, one after the other for the most part.
  const int others = q.size - 1;
  const double look = 1 + 1.2 * others, readContention = 1 + 0.75 * others;
  return 2 * startMicros(q.size) + look + block * kReadProcess * readContention;
}

}  // namespace

namespace algorithms {

Algorithm scatterShmPull() {
  return {.name = "pull",
          .kinds = {CollectiveKind::Scatter},
          .run = scatterPull,
          .micros = scatterPullMicros,
          .whyNot = whyNoAddresses,
          .readsPeers = true};
}

}  // namespace algorithms

}  // namespace ctran
