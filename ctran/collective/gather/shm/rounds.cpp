#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// Every rank but the root writes its block piece by piece; the root reads them in turn, and copies
/// a piece of its own while the others write theirs.
Task gatherRounds(ShmContext& shm, const Collective& c) {
  const bool isRoot = shm.rank == c.root;
  const size_t share = shareBytes(c.blockBytes(), 1, sizeOf(c.type));
  return exchangeRounds(
      shm, roundsFor(c.blockBytes(), share), share, !isRoot, isRoot ? kFromAll : kFromNobody,
      [&c, &shm, share](uint64_t k, std::byte* buffer) {
        const Piece piece(c.blockBytes(), share, k);
        shm.put(buffer, c.input + piece.offset, piece.bytes);
      },
      [&c, &shm, share](uint64_t k, int peer, const std::byte* buffer) {
        const Piece piece(c.blockBytes(), share, k);
        if (peer == (shm.rank + 1) % shm.size) {
          std::byte* own = c.outputBlock(shm.rank).data;
          shm.take(own + piece.offset, c.input + piece.offset, piece.bytes);
        }
        shm.take(c.outputBlock(peer).data + piece.offset, buffer, piece.bytes);
      });
}

/// The root reads all others' blocks, and writes nothing that others read.
double gatherRoundsMicros(const AlgorithmQuery& q) {
  return inRoundsMicros({0, static_cast<double>(q.bytes) * (q.size - 1), 0}, q.size, 1);
}

}  // namespace

namespace algorithms {

Algorithm gatherShmRounds() {
  return {.name = "rounds",
          .kinds = {CollectiveKind::Gather},
          .run = gatherRounds,
          .micros = gatherRoundsMicros};
}

}  // namespace algorithms

}  // namespace ctran
