#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// Every rank but the root writes its block piece by piece; the root reads them in turn.
Task gatherRounds(ShmContext& shm, const Collective& c) {
  const bool isRoot = shm.rank == c.root;
  const size_t share = shareBytes(c.blockBytes(), 1, sizeOf(c.type));
  if (isRoot) copyBlock(c.outputBlock(shm.rank).data, c.input, c.blockBytes());
  return exchangeRounds(
      shm, roundsFor(c.blockBytes(), share), share, !isRoot, isRoot ? kFromAll : kFromNobody,
      [&c, &shm, share](uint64_t k, std::byte* buffer) {
        const Piece piece(c.blockBytes(), share, k);
        shm.put(buffer, c.input + piece.offset, piece.bytes);
      },
      [&c, &shm, share](uint64_t k, int peer, const std::byte* buffer) {
        const Piece piece(c.blockBytes(), share, k);
        shm.take(c.outputBlock(peer).data + piece.offset, buffer, piece.bytes);
      });
}

}  // namespace

namespace algorithms {

Algorithm gatherShmRounds() {
  return {.name = "rounds",
          .kinds = {CollectiveKind::Gather},
          .run = gatherRounds,
          .micros = roundsMicros};
}

}  // namespace algorithms

}  // namespace ctran
