#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// The root writes piece after piece into its buffers, up to a ring ahead of the
/// slowest reader. Every byte is written once and read by size - 1 ranks.
Task broadcastRounds(ShmContext& shm, const Collective& c) {
  const bool isRoot = shm.rank == c.root;
  const size_t bytes = c.blockBytes();
  const size_t share = shareBytes(bytes, 1, sizeOf(c.type));
  return exchangeRounds(
      shm, roundsFor(bytes, share), share, isRoot, isRoot ? kFromNobody : c.root,
      [&c, &shm, bytes, share](uint64_t k, std::byte* buffer) {
        const Piece piece(bytes, share, k);
        shm.put(buffer, c.output + piece.offset, piece.bytes);
      },
      [&c, &shm, bytes, share](uint64_t k, int, const std::byte* buffer) {
        const Piece piece(bytes, share, k);
        shm.take(c.output + piece.offset, buffer, piece.bytes);
      });
}

}  // namespace

namespace algorithms {

Algorithm broadcastShmRounds() {
  return {.name = "rounds",
          .kinds = {CollectiveKind::Broadcast},
          .run = broadcastRounds,
          .micros = roundsMicros};
}

}  // namespace algorithms

}  // namespace ctran
