#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// The root writes a share of every rank's block per round; every byte is written and read once.
Task scatterRounds(ShmContext& shm, const Collective& c) {
  const bool isRoot = shm.rank == c.root;
  const size_t share = shareBytes(c.blockBytes(), shm.size, sizeOf(c.type));
  if (isRoot) copyBlock(c.output, c.inputBlock(shm.rank).data, c.blockBytes());
  return exchangeRounds(
      shm, roundsFor(c.blockBytes(), share), share * shm.size, isRoot,
      isRoot ? kFromNobody : c.root,
      [&c, &shm, share](uint64_t k, std::byte* buffer) {
        const Piece piece(c.blockBytes(), share, k);
        for (int r = 0; r < shm.size; ++r) {
          if (r == shm.rank) continue;
          shm.put(buffer + r * share, c.inputBlock(r).data + piece.offset, piece.bytes);
        }
      },
      [&c, &shm, share](uint64_t k, int, const std::byte* buffer) {
        const Piece piece(c.blockBytes(), share, k);
        shm.take(c.output + piece.offset, buffer + shm.rank * share, piece.bytes);
      });
}

}  // namespace

namespace algorithms {

Algorithm scatterShmRounds() {
  return {.name = "rounds",
          .kinds = {CollectiveKind::Scatter},
          .run = scatterRounds,
          .micros = roundsMicros};
}

}  // namespace algorithms

}  // namespace ctran
