#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// Every rank writes its block once, piece by piece, and reads the size - 1 others', starting with
/// its neighbour so that no two ranks read the same block at the same time.
Task allGatherRounds(ShmContext& shm, const Collective& c) {
  const size_t share = shareBytes(c.largestOutput(), 1, sizeOf(c.type));
  return exchangeRounds(
      shm, roundsFor(c.largestOutput(), share), share, true, kFromAll,
      [&c, &shm, share](uint64_t k, std::byte* buffer) {
        const Piece piece(c.blockBytes(), share, k);
        shm.put(buffer, c.input + piece.offset, piece.bytes);
        shm.take(c.outputBlock(shm.rank).data + piece.offset, c.input + piece.offset, piece.bytes);
      },
      [&c, &shm, share](uint64_t k, int peer, const std::byte* buffer) {
        const Block block = c.outputBlock(peer);
        const Piece piece(block.count * sizeOf(c.type), share, k);
        shm.take(block.data + piece.offset, buffer, piece.bytes);
      });
}

}  // namespace

namespace algorithms {

Algorithm allGatherShmRounds() {
  return {.name = "rounds",
          .kinds = {CollectiveKind::AllGather, CollectiveKind::AllGatherV},
          .run = allGatherRounds,
          .micros = roundsMicros};
}

}  // namespace algorithms

}  // namespace ctran
