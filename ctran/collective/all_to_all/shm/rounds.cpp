#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// Per round every rank publishes a share of each block; every byte is written and read once. A
/// share is published before the same share of the output is written, so in place works.
Task allToAllRounds(ShmContext& shm, const Collective& c) {
  const size_t share = shareBytes(c.blockBytes(), shm.size, sizeOf(c.type));
  shm.take(c.outputBlock(shm.rank).data, c.inputBlock(shm.rank).data, c.blockBytes());
  return exchangeRounds(
      shm, roundsFor(c.blockBytes(), share), share * shm.size, true, kFromAll,
      [&c, &shm, share](uint64_t k, std::byte* buffer) {
        const Piece piece(c.blockBytes(), share, k);
        for (int r = 0; r < shm.size; ++r) {
          if (r == shm.rank) continue;
          shm.put(buffer + r * share, c.inputBlock(r).data + piece.offset, piece.bytes);
        }
      },
      [&c, &shm, share](uint64_t k, int peer, const std::byte* buffer) {
        const Piece piece(c.blockBytes(), share, k);
        shm.take(c.outputBlock(peer).data + piece.offset, buffer + shm.rank * share, piece.bytes);
      });
}

}  // namespace

namespace algorithms {

Algorithm allToAllShmRounds() {
  return {.name = "rounds",
          .kinds = {CollectiveKind::AllToAll},
          .run = allToAllRounds,
          .micros = roundsMicros};
}

}  // namespace algorithms

}  // namespace ctran
