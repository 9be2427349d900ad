#include "ctran/collective/shm_algorithms.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {

/// One step: the root publishes, all others copy.
Task broadcastStep(ShmContext& shm, const Collective& c) {
  const bool isRoot = shm.rank == c.root;
  return exchangeStep(
      shm, c.blockBytes(), isRoot, isRoot ? kFromNobody : c.root,
      [&c, &shm](std::byte* slot) { shm.put(slot, c.output, c.blockBytes()); },
      [&c](int, const std::byte* slot) { copyBlock(c.output, slot, c.blockBytes()); });
}

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

}  // namespace ctran
